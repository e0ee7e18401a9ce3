"""Encoding in blocks of features against the SAE's own dense encode."""

from __future__ import annotations

import pytest
import torch

from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep import encoding
from neuroscope.sweep.encoding import fired

D_IN, D_SAE, TOKENS = 6, 37, 23


def sae(**options: object) -> SparseAutoencoder:
    generator = torch.Generator().manual_seed(0)

    def whole(*shape: int) -> torch.Tensor:
        """Small whole numbers: their products are exact in float32, in whatever order they are summed."""
        return torch.randint(-3, 4, shape, generator=generator).float()

    threshold = whole(D_SAE) + 0.5  # some below 0: relu decides there
    return SparseAutoencoder(whole(D_IN, D_SAE), whole(D_SAE), threshold, **options)  # type: ignore[arg-type]


X = torch.randint(-3, 4, (TOKENS, D_IN), generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize("cells", [1, 5, 23, 100, 300, 10**6])
@pytest.mark.parametrize("rows", [1, 4, 1024])
def test_blocks_of_any_size_find_what_the_dense_encoding_holds(
    cells: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "BLOCK_ROWS", rows)
    dense = sae().encode(X)
    row, feature = torch.nonzero(dense, as_tuple=True)
    found = fired(sae(), X, cells)
    assert found.l0.tolist() == torch.bincount(row, minlength=TOKENS).tolist()
    assert found.feature.tolist() == feature.tolist()
    assert found.value.tolist() == dense[row, feature].tolist()


@pytest.mark.parametrize("cells", [1, 23, 60, 300, 10**6])
@pytest.mark.parametrize("k", [1, 4, 30, D_SAE])
def test_the_k_largest_of_all_blocks_are_kept(k: int, cells: int) -> None:
    x = X + torch.rand(X.shape, generator=torch.Generator().manual_seed(2))  # no two alike
    dense = sae(k=k).encode(x)
    row, feature = torch.nonzero(dense, as_tuple=True)
    found = fired(sae(k=k), x, cells)
    assert found.l0.tolist() == torch.bincount(row, minlength=TOKENS).tolist()
    assert found.feature.tolist() == feature.tolist()
    assert found.value.tolist() == pytest.approx(dense[row, feature].tolist(), rel=1e-5)


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_counts_as_a_firing(value: float, k: int | None) -> None:
    encoder = torch.eye(4)
    broken = SparseAutoencoder(encoder, torch.zeros(4), torch.ones(4), k=k)
    x = torch.zeros(2, 4)
    x[1, 2] = value
    found = fired(broken, x, 4)
    assert found.l0[1] > 0
    assert not torch.isfinite(torch.from_numpy(found.value)).all()


def test_no_tokens_have_no_firings() -> None:
    found = fired(sae(), X[:0])
    assert (len(found.l0), len(found.feature), len(found.value)) == (0, 0, 0)


def test_a_block_holds_no_more_cells_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    real = torch.addmm

    def watched(*arguments: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        sizes.append(out.numel())
        return real(*arguments, out=out)

    monkeypatch.setattr(torch, "addmm", watched)
    fired(sae(), X, 100)
    assert max(sizes) == 4 * TOKENS  # four features of 23 tokens are 92 cells
    assert sum(sizes) == TOKENS * D_SAE
