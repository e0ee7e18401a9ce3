"""The screen reads a copy of the encoder in few bits and changes nothing: neither what is active nor how strongly."""

from __future__ import annotations

import ctypes
import logging
import math
import shutil
import threading
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from neuroscope import native
from neuroscope.errors import ModelError
from neuroscope.sae import SparseActs, SparseAutoencoder, screen
from neuroscope.sae.digits import DITHERED, Digits
from neuroscope.sae.exact import features_of, summed
from neuroscope.sae.int8_rows import Int8Rows
from neuroscope.sae.one_row import OneRow, library
from neuroscope.sae.one_row_torch import OneRowByTorch
from neuroscope.sae.reading import FeatureReader
from neuroscope.sae.screen import Screen, finds_as_torch, screen_of

Maker = Callable[[SparseAutoencoder], Screen]
SCALES = [1e-42, 1e-30, 1e-8, 1.0, 1e6, 1e15]


def plain(d_in: int, d_sae: int, seed: int = 0, *, k: int | None = None) -> SparseAutoencoder:
    """Random weights; about one feature in a hundred passes its threshold, with k that many of those above 0."""
    torch.manual_seed(seed)
    threshold = torch.full((d_sae,), 2.3 if k is None else 0.0)
    return SparseAutoencoder(torch.randn(d_in, d_sae) / d_in**0.5, 0.1 * torch.randn(d_sae), threshold, k=k)


def whole(sae: SparseAutoencoder, x: Tensor) -> SparseActs:
    return features_of(sae, x, torch.arange(sae.d_sae))


def in_c() -> ctypes.CDLL:
    compiled = library()
    assert compiled is not None, "a C compiler is there"
    return compiled


@pytest.fixture(params=["torch", "C"])
def make(request: pytest.FixtureRequest) -> Maker:
    """A screen by torch, and the compiled one: each promise is both's."""
    if request.param == "torch":
        return Screen
    return partial(Screen, compiled=in_c())


def found(used: Screen, x: Tensor) -> SparseActs:
    return used.read(x).acts


def same(one: SparseActs, other: SparseActs) -> bool:
    return np.array_equal(one.indices, other.indices) and np.array_equal(
        one.values.view(np.uint32), other.values.view(np.uint32)
    )


@pytest.fixture
def any_number_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the copy decide however many features it lets through: these SAEs are small."""
    monkeypatch.setattr(screen, "MOST", 1.0)


def odd_sae(seed: int) -> tuple[SparseAutoencoder, Tensor]:
    """Weights, thresholds and a row as no training makes them, some of each kind by chance."""
    draw = np.random.default_rng(seed)
    torch.manual_seed(seed)
    d_in, d_sae = int(draw.integers(1, 150)), int(draw.integers(1, 300))
    W_enc = torch.randn(d_in, d_sae) * torch.tensor(draw.choice(SCALES, (1, d_sae))).float()
    if draw.random() < 0.5:  # within one feature too
        W_enc *= torch.tensor(draw.choice([1e-12, 1e-3, 1.0, 1e3], (d_in, d_sae))).float()
    W_enc[:, draw.random(d_sae) < 0.2] = 0.0
    b_enc = torch.randn(d_sae) * torch.tensor(draw.choice([0.0, 1e-40, 1e-3, 1.0, 1e4], d_sae)).float()
    x = torch.randn(d_in) * float(draw.choice([1e-40, 1e-3, 1.0, 1e3]))
    x[draw.integers(d_in)] *= float(draw.choice([0.0, 1.0, 100.0, 1e6]))
    k = int(draw.integers(1, d_sae + 1)) if draw.random() < 0.4 else None
    sae = SparseAutoencoder(W_enc, b_enc, torch.zeros(d_sae), k=k)
    pre = summed((sae.W_enc.T * x).contiguous()) + b_enc
    if k is None or draw.random() < 0.5:  # at the pre-activation itself, and one float beside it
        beside = [
            pre,
            pre.nextafter(torch.tensor(torch.inf)),
            pre.nextafter(torch.tensor(-torch.inf)),
            pre * 0.9,
        ]
        beside += [torch.zeros(d_sae), torch.full((d_sae,), 1e-45)]
        sae.threshold = torch.stack(beside)[
            torch.tensor(draw.integers(len(beside), size=d_sae)), torch.arange(d_sae)
        ]
    return sae, x


@pytest.mark.usefixtures("any_number_passes")
def test_the_screen_finds_what_all_features_give_to_the_last_bit(make: Maker) -> None:
    for seed in range(400):
        sae, x = odd_sae(seed)
        assert same(found(make(sae), x), whole(sae, x)), f"seed {seed}"


def test_so_does_the_whole_encoder_that_is_read_where_too_many_features_pass(make: Maker) -> None:
    for seed in range(200):
        sae, x = odd_sae(seed)
        reading = make(sae).one_row.read(x, 0)
        assert reading is not None
        assert same(reading.acts, whole(sae, x)), f"seed {seed}"


@pytest.mark.parametrize("k", [None, 20, 2048])
def test_few_features_pass_the_screen_and_encode_finds_the_same(k: int | None, make: Maker) -> None:
    sae = plain(256, 2048, k=k)
    used = make(sae)
    for x in torch.randn(20, 256):
        acts = found(used, x)
        encoded = sae.encode(x)
        assert acts.indices.tolist() == encoded.nonzero()[:, 0].tolist()
        np.testing.assert_allclose(acts.values, encoded[encoded > 0].numpy(), rtol=1e-4, atol=1e-6)
        assert k == 2048 or used.candidates <= 2048 / 16
    assert used.is_used or k == 2048


def test_a_dimension_a_thousand_times_the_others_is_split_off(make: Maker) -> None:
    """The bound is made of the row's norm, to which such a dimension would add what it does not cost in accuracy."""
    sae = plain(512, 2048)
    sae.W_enc[7] = 0.0  # as in real encoders: nothing is read from such a dimension
    used = make(sae)
    rows = torch.randn(4, 512)
    rows[:, 7] = 3000.0
    for x in rows:
        assert same(found(used, x), whole(sae, x))
        assert 0 < used.candidates <= 2048 / 16
    assert used.is_used


@pytest.mark.usefixtures("any_number_passes")
def test_of_equal_values_at_the_last_place_the_lower_indices_stay(make: Maker) -> None:
    sae = SparseAutoencoder(torch.ones(4, 200), torch.zeros(200), torch.zeros(200), k=3)
    sae.W_enc[:, 150] = 2.0
    acts = found(make(sae), torch.ones(4))
    assert (acts.indices.tolist(), acts.values.tolist()) == ([0, 1, 150], [4.0, 4.0, 8.0])


def test_a_feature_gives_the_same_bits_whichever_others_are_computed_with_it() -> None:
    sae = plain(577, 700)
    sae.threshold -= 10
    x = torch.randn(577)
    values = dict(zip((acts := whole(sae, x)).indices.tolist(), acts.values.tolist(), strict=True))
    for features in ([3], [699], [*range(1, 700, 2)]):
        some = features_of(sae, x, torch.tensor(features))
        assert some.values.tolist() == [values[i] for i in features if i in values]


def test_sums_are_exact_where_float32_can_hold_them() -> None:
    for length in (1, 2, 3, 64, 65, 577):
        assert summed(torch.arange(length * 2.0).reshape(2, length))[0] == length * (length - 1) / 2


def test_the_bound_of_the_copy_holds_for_every_feature() -> None:
    for seed in range(200):
        sae, x = odd_sae(seed)
        copy = Int8Rows(sae.W_enc.T.contiguous())
        for _ in range(2):
            bound = copy.product(x, 0.0)
            assert bound is not None
            off = (bound.values.double() - sae.W_enc.T.double() @ x.double()).abs()
            assert (off <= bound.errors.double()).all(), f"seed {seed}"
            copy.split.take(x)


def digits_of(copy: Digits) -> tuple[Tensor, Tensor]:
    """The first and the second digit of each weight [d_sae, d_in], float64."""
    packed = (copy.first, copy.second)
    first, second = (torch.cat([one & 15, one >> 4], 1)[:, : copy.d_in].double() for one in packed)
    return first, second


def test_digits_give_each_weight_within_half_a_step_and_a_thirty_second() -> None:
    for seed in range(200):
        sae, _ = odd_sae(seed)
        rows = sae.W_enc.T.contiguous()
        copy = Digits(rows, in_c())
        first, second = digits_of(copy)
        step, dither = copy.step.double()[:, None], copy.dither[: copy.d_in]
        by_first = step * (first - 7 - dither)
        by_both = step * (first + (second + 0.5) / 16 - 7.5 - dither)
        assert ((rows - by_first).abs() <= step * (1 + 1e-9) / 2).all()
        assert ((rows - by_both).abs() <= step * (1 + 1e-9) / 32).all()
        for given in (rows.double(), by_first, by_both):
            assert (given.norm(dim=1) <= copy.norms.double()).all()


def test_a_row_in_whole_numbers_is_within_half_a_pace_and_what_it_leaves_is_even() -> None:
    """Of rows that are alike in every dimension too: without the dither it would be the same everywhere."""
    torch.manual_seed(0)
    d_in = 1000
    sae = SparseAutoencoder(torch.randn(d_in, 64), torch.zeros(64), torch.zeros(64))
    one_row = Screen(sae, in_c()).one_row
    dither = one_row.copy.row_dither[:d_in]
    kinds = (torch.randn(d_in), torch.randn(d_in).exp(), -torch.ones(d_in), 1e-30 * torch.randn(d_in))
    for x in kinds:
        one_row.read(x, 64)
        whole = torch.from_numpy(one_row._work["whole"][:d_in].copy()).double()
        left = 126 * x.double() / float(x.abs().max()) - (whole - dither)
        assert left.abs().max() <= 0.5 + 1e-9
        weights = torch.cat([torch.randn(64, d_in), torch.ones(1, d_in)]).double()
        assert (left @ weights.T / weights.norm(dim=1)).abs().max() < DITHERED / 2
    one_row.read(torch.zeros(d_in), 64)
    assert not one_row._work["whole"].any()


def test_bounds_are_around_the_sums_and_as_far_away_as_chance_says() -> None:
    torch.manual_seed(0)
    d_in, d_sae = 1100, 64
    sae = SparseAutoencoder(torch.rand(d_in, d_sae), torch.zeros(d_sae), torch.zeros(d_sae))
    one_row, rows = Screen(sae, in_c()).one_row, sae.W_enc.T.double()
    weights, step = rows.norm(dim=1), one_row.copy.step.double()
    first, second = digits_of(one_row.copy)
    by_both = step[:, None] * (first + (second + 0.5) / 16 - 7.5 - one_row.copy.dither[:d_in])
    apart = []
    for x in (0.1 + torch.rand(1000, d_in)).unbind():
        reading = one_row.read(x, d_sae)
        assert reading is not None
        assert len(reading.acts.indices) == d_sae  # all are positive, so the bounds of all are there
        lowest, highest = (
            torch.from_numpy(one_row._work[name].copy()).double() for name in ("lowest", "highest")
        )
        pace, size, exact = float(x.max()) / 126, float(x.double().norm()), rows @ x.double()
        given = torch.from_numpy(one_row._work["whole"][:d_in].copy()) - one_row.copy.row_dither[:d_in]
        assert (lowest + highest) / 2 == pytest.approx(by_both @ (pace * given), abs=3e-4)
        assert (highest - lowest) / 2 == pytest.approx(
            DITHERED * (step / 16 * size + pace * weights), rel=0.01
        )
        spread = ((step / 16 * size) ** 2 + (pace * weights) ** 2).sqrt() / 12**0.5
        apart.append(((lowest + highest) / 2 - exact) / spread)
    assert torch.cat(apart).square().mean() == pytest.approx(1, abs=0.15)
    assert torch.cat(apart).mean() == pytest.approx(0, abs=0.3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_the_row_s_dither_has_of_a_sum_is_taken_out_again(sign: float) -> None:
    """Features that lie along the dither, in which it has more of a sum of first digits than any bound allows."""
    torch.manual_seed(0)
    d_in = 4096
    along = Digits(torch.zeros(1, d_in), in_c()).row_dither.sign().float()
    x = torch.where(torch.arange(d_in) < 28, 1.0, 0.1 * torch.rand(d_in))[torch.randperm(d_in)]
    W_enc = sign * along[:, None].repeat(1, 256)
    exact = float(W_enc[:, 0].double() @ x.double())
    bias = torch.full((256,), 1 - exact)  # all come to 1
    for threshold, count in ((0.99, 256), (1.01, 0)):
        sae = SparseAutoencoder(W_enc, bias, torch.full((256,), threshold))
        one_row = Screen(sae, in_c()).one_row
        one_row.split_off(x)
        reading = one_row.read(x, 256)
        assert reading is not None
        assert len(reading.acts.indices) == count


@pytest.mark.parametrize("kind", ["gaussian", "equal", "two values", "few are large"])
@pytest.mark.parametrize("digits", ["first", "both"])
def test_what_digits_leave_is_as_even_as_the_bound_supposes(kind: str, digits: str) -> None:
    """Whatever the weights are: without the dither what is left of equal weights would be the same everywhere."""
    torch.manual_seed(0)
    d_in, d_sae = 512, 2048
    rows = {
        "gaussian": torch.randn(d_sae, d_in),
        "equal": torch.ones(d_sae, d_in) * torch.rand(d_sae, 1),
        "two values": torch.randint(2, (d_sae, d_in)) * 0.37 - 0.2,
        "few are large": torch.randn(d_sae, d_in) * (1 + 30 * (torch.rand(d_sae, d_in) < 0.01)),
    }[kind].float()
    copy = Digits(rows, in_c())
    first, second = digits_of(copy)
    steps = rows.double() / copy.step.double()[:, None]
    of_first = steps - (first - 7 - copy.dither[:d_in])
    of_both = 16 * (steps - (first + (second + 0.5) / 16 - 7.5 - copy.dither[:d_in]))
    left = of_first if digits == "first" else of_both
    assert left.var() == pytest.approx(1 / 12, rel=0.1)
    x = torch.cat([torch.randn(64, d_in), torch.randn(64, d_in).exp(), torch.ones(1, d_in)]).double()
    share = (left @ x.T / x.norm(dim=1)).abs()  # what is left of a product, in steps times |x|
    for t in (0.5, 1.0, 1.3):
        assert (share > t).double().mean() <= 2 * math.exp(-6 * t * t)
    assert share.max() < DITHERED


@pytest.mark.usefixtures("any_number_passes")
def test_a_last_place_that_moves_between_rows_changes_nothing() -> None:
    """The last place of a TopK is guessed by the row before, which may have been a hundred times stronger or weaker."""
    sae = plain(256, 2048, k=20)
    used = Screen(sae, in_c())
    counts = []
    for strength in (1.0, 1.0, 100.0, 1.0, 0.01, 0.0, 1.0, 1.0, 0.8, 1.1, 1e-30, 5.0):
        x = strength * torch.randn(256)
        assert same(found(used, x), whole(sae, x))
        counts.append(used.candidates)
    assert max(counts[:2]) < 200


@pytest.mark.usefixtures("any_number_passes")
def test_a_bias_that_the_sum_hardly_moves_is_rounded_as_everywhere(make: Maker) -> None:
    """Products of about half a unit in the last place of the bias: one rounding decides, and 8 bits tell nothing."""
    torch.manual_seed(0)
    half = 2.0**-11  # of 8192 to 16384, floats are 2**-10 apart
    W_enc = (1 + 0.01 * torch.randn(64, 1024)) * half / 64
    sae = SparseAutoencoder(W_enc, torch.full((1024,), 10_000.0), torch.full((1024,), 10_000.0))
    expected = whole(sae, torch.ones(64))
    assert 100 < expected.l0 < 924
    assert same(found(make(sae), torch.ones(64)), expected)


def test_features_that_read_nothing_do_not_pass(make: Maker) -> None:
    """Dead features of releases are zero rows, with bias and threshold 0; half of some SAEs are."""
    sae = SparseAutoencoder(torch.zeros(64, 4096), torch.zeros(4096), torch.zeros(4096))
    used = make(sae)
    assert found(used, torch.ones(64)).l0 == used.candidates == 0
    assert used.is_used


def test_an_sae_of_which_half_is_active_is_read_whole_after_some_rows(make: Maker) -> None:
    sae = plain(64, 1024)
    sae.threshold.zero_()
    used = make(sae)
    rows = torch.randn(12, 64)
    for x in rows:
        acts = found(used, x)
        assert same(acts, whole(sae, x))
        assert acts.l0 > 300
    assert not used.is_used
    assert same(found(used, rows[0]), whole(sae, rows[0]))


def test_one_crowded_row_does_not_end_the_screen(make: Maker) -> None:
    sae = plain(256, 2048)
    used = make(sae)
    crowded = 100 * torch.randn(256)
    for _ in range(12):
        assert same(found(used, crowded), whole(sae, crowded))
        for x in torch.randn(4, 256):
            found(used, x)
    assert used.is_used


def test_sums_beyond_float32_give_what_encode_gives(make: Maker) -> None:
    sae = plain(64, 256)
    x = torch.randn(64) * 1e37
    acts = found(make(sae), x)
    encoded = sae.encode(x)
    assert acts.indices.tolist() == encoded.nonzero()[:, 0].tolist()
    assert acts.values.tolist() == encoded[encoded != 0].tolist()


@pytest.mark.parametrize("by", ["torch", "C"])
@pytest.mark.parametrize("norm", ["none", "rms", "layer_norm", "constant_norm_rescale"])
def test_a_reader_screens_one_row_and_not_several(
    monkeypatch: pytest.MonkeyPatch, norm: str, by: str
) -> None:
    monkeypatch.setattr(screen, "MIN_WEIGHTS", 256 * 2048)
    monkeypatch.setattr(screen, "MIN_WEIGHTS_IN_C", 256 * 2048)
    if by == "torch":
        monkeypatch.setattr(screen, "library", lambda: None)
    small = plain(256, 2048)
    sae = SparseAutoencoder(
        small.W_enc,
        small.b_enc,
        small.threshold,
        small.W_enc.T.contiguous(),
        torch.zeros(256),
        input_norm=norm,
    )
    before = sae.encode(torch.ones(256))
    reader = FeatureReader(sae)
    assert reader.screen is not None
    assert isinstance(reader.screen.one_row, OneRow) == (by == "C")
    residual = torch.randn(3, 256)
    many = reader.read(residual)
    assert reader.screen.candidates == 0
    for row, expected in zip(residual, many, strict=True):
        (reading,) = reader.read(row[None])
        assert reading.acts.indices.tolist() == expected.acts.indices.tolist()
        np.testing.assert_allclose(reading.acts.values, expected.acts.values, rtol=1e-4)
        assert reading.fvu == pytest.approx(expected.fvu, rel=1e-4)
    assert reader.screen.candidates > 0
    torch.testing.assert_close(sae.encode(torch.ones(256)), before)
    with pytest.raises(ModelError, match="not finite"):
        reader.read(torch.full((1, 256), torch.inf))


def test_a_small_encoder_is_not_screened() -> None:
    assert screen_of(plain(64, 256)) is None


@pytest.mark.parametrize("fault", ["missing", "refuses", "rounds its input to 8 bits"])
def test_a_torch_whose_kernel_is_another_is_not_trusted(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def other(x: Tensor, weights: Tensor, scale: Tensor) -> Tensor:
        if fault == "refuses":
            raise RuntimeError("not on this processor")
        step = x.abs().max() / 2
        return ((x / step).round() * step @ weights.T.to(x.dtype)) * scale

    monkeypatch.setattr(screen, "MIN_WEIGHTS", 1)
    monkeypatch.setattr(screen, "MIN_WEIGHTS_IN_C", 1)
    monkeypatch.setattr(screen, "library", lambda: None)
    assert screen_of(plain(256, 2048)) is not None
    if fault == "missing":
        monkeypatch.delattr(torch, "_weight_int8pack_mm")
    else:
        monkeypatch.setattr(torch, "_weight_int8pack_mm", other)
    assert screen_of(plain(256, 2048)) is None


def test_whole_numbers_of_the_row_stay_within_their_sums() -> None:
    """As many dimensions, all as large as can be and of one sign, as bring a sum of 31 bits nearest to its end."""
    for d_in in (1, 64, 600, 70_000):
        for sign in (1.0, -1.0):
            sae = SparseAutoencoder(torch.ones(d_in, 64), torch.zeros(64), torch.full((64,), d_in - 1.0))
            sae.W_enc[:, 32:] = -1.0
            used = Screen(sae, in_c())
            acts = found(used, sign * torch.ones(d_in))
            assert acts.indices.tolist() == list(range(32) if sign > 0 else range(32, 64))
            assert set(acts.values.tolist()) == {float(d_in)}
            assert used.is_used


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_a_weight_that_is_no_number_leaves_the_other_features_as_they_are(make: Maker, bad: float) -> None:
    sae = plain(64, 256)
    x = torch.randn(64)
    before = found(make(sae), x)
    sae.W_enc[3, 5] = bad
    acts = found(make(sae), x)
    assert 5 not in before.indices
    others = acts.indices != 5
    assert acts.indices[others].tolist() == before.indices.tolist()
    np.testing.assert_allclose(acts.values[others], before.values, rtol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_biases_and_thresholds_that_are_no_numbers_decide_as_everywhere(make: Maker, bad: float) -> None:
    for which in ("b_enc", "threshold"):
        sae = plain(64, 256)
        getattr(sae, which)[::9] = bad
        for x in torch.randn(4, 64):
            assert same(found(make(sae), x), whole(sae, x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_refused(make: Maker, bad: float) -> None:
    x = torch.randn(64)
    x[7] = bad
    with pytest.raises(ModelError, match="not finite"):
        make(plain(64, 256)).read(x)


def test_rows_that_have_no_bound_do_not_end_the_screen(make: Maker) -> None:
    sae = plain(256, 2048)
    used = make(sae)
    for bad in (float("nan"), float("inf")):
        for _ in range(20):
            with pytest.raises(ModelError, match="not finite"):
                used.read(torch.full((256,), bad))
    for _ in range(20):
        used.read(torch.full((256,), 1e37))
    assert used.is_used
    x = torch.randn(256)
    assert same(found(used, x), whole(sae, x))
    assert 0 < used.candidates <= 2048 / 16


def test_a_row_that_lies_apart_in_memory_is_read_as_it_is(make: Maker) -> None:
    sae = plain(256, 2048)
    used = make(sae)
    for pairs in torch.randn(50, 256, 2):
        expected = whole(sae, pairs[:, 0].clone())
        assert same(found(used, pairs[:, 0]), expected)


@pytest.mark.parametrize("row", [torch.randn(100), torch.randn(300), torch.randn(256).double()])
def test_a_row_that_is_not_the_saes_is_refused_before_c_reads_it(row: Tensor) -> None:
    used = Screen(plain(256, 2048), in_c())
    used.read(torch.randn(256))
    with pytest.raises(ModelError, match="came to an SAE that reads 256"):
        used.read(row)


@pytest.mark.usefixtures("any_number_passes")
def test_more_threads_find_the_same_and_callers_wait_for_each_other() -> None:
    sae = plain(300, 5000, k=40)
    sae.W_dec, sae.b_dec = torch.randn(5000, 300), torch.randn(300)
    used, rows = Screen(sae, in_c(), decoder=True), torch.randn(16, 300)
    alone = [used.read(x) for x in rows]
    wrong: list[int] = []

    def read_all() -> None:
        torch.set_num_threads(2)
        for _ in range(5):
            for number, (x, expected) in enumerate(zip(rows, alone, strict=True)):
                reading = used.read(x)
                if not same(reading.acts, expected.acts) or reading.fvu != expected.fvu:
                    wrong.append(number)

    before = torch.get_num_threads()
    try:
        callers = [threading.Thread(target=read_all) for _ in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    finally:
        torch.set_num_threads(before)
    assert not wrong


def compiled_from(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> ctypes.CDLL:
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, *flags))
    native._compile(source.encode(), tmp_path / "other.so")
    return ctypes.CDLL(str(tmp_path / "other.so"))


def source() -> str:
    return resources.files("neuroscope.sae").joinpath("one_row.c").read_text()


@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.usefixtures("any_number_passes")
def test_a_processor_without_avx2_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    plainly = compiled_from(source(), tmp_path, monkeypatch, "-DPLAIN", level, "-Wall", "-Wextra", "-Werror")
    for seed in range(60):
        sae, x = odd_sae(seed)
        assert same(found(Screen(sae, plainly), x), whole(sae, x)), f"seed {seed}"


def test_a_compiler_that_adds_otherwise_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = "lower[i] += upper[i]"
    assert source().count(sums) == 1
    other = compiled_from(source().replace(sums, f"{sums} * 1.000001f"), tmp_path, monkeypatch)
    sae = plain(256, 2048)
    assert finds_as_torch(in_c())
    assert not finds_as_torch(other)
    monkeypatch.setattr(screen, "MIN_WEIGHTS_IN_C", 1)
    monkeypatch.setattr(screen, "library", lambda: other)
    assert screen_of(sae) is None


def test_without_a_compiler_torch_finds_the_same_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(screen, "MIN_WEIGHTS", 1)
    monkeypatch.setattr(screen, "MIN_WEIGHTS_IN_C", 1)
    sae = plain(256, 2048)
    compiled = screen_of(sae)
    monkeypatch.setattr(native, "cache_dir", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native.compiled.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            without = screen_of(sae)
    finally:
        native.compiled.cache_clear()
    assert shutil.which("cc") is None
    assert compiled is not None
    assert without is not None
    assert isinstance(compiled.one_row, OneRow)
    assert isinstance(without.one_row, OneRowByTorch)
    assert "Features of single tokens are found by torch" in caplog.text
    assert "no C compiler is on the path: none of cc, gcc, clang" in caplog.text
    for x in torch.randn(5, 256):
        assert same(found(compiled, x), found(without, x))
