"""What each stage of the pipeline depends on: the declared settings are those it reads, and they reach Snakemake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import releases

from neuroscope import settings, stages
from neuroscope.settings import Settings
from neuroscope.settings.values import SaeSource
from neuroscope.stages.sae import fetch_sae

GEMMA = settings.load("gemma-2-2b-it")
SMOLLM = settings.load("smollm2-135m")


@pytest.mark.parametrize("stage", sorted(stages.USES))
@pytest.mark.parametrize("settled", [GEMMA, SMOLLM], ids=["gemma", "smollm"])
def test_what_a_stage_reads_exists_and_is_plain(stage: str, settled: Settings) -> None:
    found = stages.params(settled, stage)
    assert list(found) == ["version", *stages.USES[stage]]
    assert json.loads(json.dumps(found)) == found


def test_a_section_that_is_switched_off_is_none() -> None:
    off = replace(GEMMA, corpus=replace(GEMMA.corpus, chat=None))
    assert stages.params(off, "chat")["corpus.chat.documents"] is None


def test_a_share_moves_the_sweep_and_not_the_documents() -> None:
    first, *others = SMOLLM.corpus.sources
    moved = replace(SMOLLM, corpus=replace(SMOLLM.corpus, sources=(replace(first, share=99.0), *others)))
    changed = {stage for stage in stages.USES if stages.params(moved, stage) != stages.params(SMOLLM, stage)}
    assert changed == {"shard", "examples", "calibration_shard", "calibration_merge"}


def test_how_a_language_model_is_asked_re_runs_nothing() -> None:
    given = {
        "labels.concurrency": 3,
        "labels.batch": True,
        "labels.max_cost_usd": 1,
        "labels.prices.input": 1,
        "labels.prices.output": 2,
        "labels.api_key_env": "MY_KEY",
    }
    changed = settings.load("smollm2-135m", overrides=given)
    assert {
        stage for stage in stages.USES if stages.params(changed, stage) != stages.params(SMOLLM, stage)
    } == set()
    claude = settings.load("smollm2-135m", overrides={"labels.labeler": "claude-haiku-4-5"})
    assert {
        stage for stage in stages.USES if stages.params(claude, stage) != stages.params(SMOLLM, stage)
    } == {"ask", "score"}, "the labeler judges labels in words, unless labels.scorer names another"


def test_the_prompts_of_a_purpose_are_files() -> None:
    assert [Path(path).name for path in stages.prompts("label")] == ["label_system.txt", "label_user.txt"]
    judged = ["score_detection.txt", "score_fuzzing.txt", "score_user.txt"]
    assert [Path(path).name for path in stages.prompts("score")] == judged
    assert all(Path(path).is_file() for path in stages.prompts("label") + stages.prompts("score"))


def test_secrets_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "ANTHROPIC_API_KEY", "NEUROSCOPE_API_KEY"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    settled = settings.load("gemma-2-2b-it")
    everything = [stages.params(settled, stage) for stage in stages.USES]
    assert "secret-of-" not in json.dumps(everything) + repr(settled)


def test_an_sae_of_several_files_is_known_by_all_of_them(tmp_path: Path) -> None:
    folder = releases.sae_lens(tmp_path / "sae", 8, 24, 0)
    source = SaeSource(str(folder), None, "sae_lens", None, 24)
    settled = replace(SMOLLM, results=tmp_path, pairing=replace(SMOLLM.pairing, sae=source))

    def fetched() -> dict[str, str]:
        fetch_sae(settled, output=tmp_path / "provenance.json")
        found: dict[str, str] = json.loads((tmp_path / "provenance.json").read_text())
        return found

    before = fetched()
    assert (before["path"], before["format"]) == (str(folder), "sae_lens")
    releases.sae_lens(tmp_path / "sae", 8, 24, 0, apply_b_dec_to_input=False)
    assert fetched()["sha256"] != before["sha256"], "the configuration is part of what the SAE is"


def test_an_edited_file_in_the_users_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    settled = settings.load("smollm2-135m", overrides={"corpus.path": str(folder)})
    before = stages.own_texts(settled)
    assert before == stages.own_texts(settled)
    (folder / "a.txt").write_text("one and more")
    assert stages.own_texts(settled) != before
    assert stages.own_texts(settings.load("smollm2-135m")) is None


def test_the_exports_of_the_default_pairing_have_the_specifications_names() -> None:
    pairing = settings.load_pairing("gemma-2-2b-it")
    assert pairing.export_name == "gemma-2-2b_20-gemmascope-res-16k"
