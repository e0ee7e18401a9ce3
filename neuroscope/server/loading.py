"""From settings to everything an answer is made with: model, SAE, and the results that fit both.

Wrong results are worse than none: what was made from another model, SAE or layer is not used, and what is missing is
said in words, with the command that mends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscope.errors import ArtefactError, NeuroscopeError
from neuroscope.server.loaded import Load, Loaded

if TYPE_CHECKING:
    from neuroscope.manifest import Fingerprint
    from neuroscope.settings import Pairing, Settings
    from neuroscope.sources import Resolved
    from neuroscope.stats import CalibrationStats
    from neuroscope.store import Results


def loader(settings: Settings) -> Load:
    """Loads what `settings` name, when it is called: torch and transformers are imported then."""

    def load(enter_stage: Callable[[str], None]) -> Loaded:
        return load_all(settings, enter_stage)

    return load


def load_all(settings: Settings, enter_stage: Callable[[str], None]) -> Loaded:
    """Everything. Raises NeuroscopeError when model or SAE cannot be had; results may be missing."""
    pairing = settings.pairing
    enter_stage("importing torch and transformers")
    from neuroscope.engine import Engine
    from neuroscope.identity import fingerprint_of
    from neuroscope.manifest import SourcesLock
    from neuroscope.models.chat import ChatTokenizer
    from neuroscope.models.loading import load_model
    from neuroscope.models.torch_backend import TorchBackend
    from neuroscope.sae import load_sae

    lock = SourcesLock(settings.results / "sources.lock.json")
    enter_stage(f"fetching {pairing.sae.uri}")
    sae_file = lock.resolve(pairing.sae.uri).path
    enter_stage(f"fetching {pairing.model}")
    source: Resolved = lock.resolve(pairing.model)
    enter_stage("loading the model")
    model, tokenizer = load_model(
        source.path, device=settings.device, dtype=pairing.dtype, quantization=settings.quantization
    )
    backend = TorchBackend(model, tokenizer, pairing.layer)
    enter_stage("loading the SAE")
    sae = load_sae(
        sae_file,
        format=pairing.sae.format,
        input_norm=pairing.sae.input_norm,
        device=str(backend.device),
        decoder=settings.serve.decoder,
    )
    engine = Engine(backend, sae, ChatTokenizer(tokenizer), decoder=settings.serve.decoder)
    enter_stage("opening the results")
    used = fingerprint_of(pairing, model=source, tokenizer=tokenizer, sae=sae, sae_file=sae_file)
    known = find_known(settings, used)
    return Loaded(
        model=model_name(pairing),
        aliases=frozenset({pairing.name, model_name(pairing).rpartition("/")[2]}),
        engine=engine,
        context_length=backend.context_length,
        layer=pairing.layer,
        device=str(backend.device),
        dtype=str(model.dtype).removeprefix("torch."),
        sae_id=sae_name(pairing),
        width=sae.d_sae,
        labels=tuple(known.labels.get(index, f"feature_{index}") for index in range(sae.d_sae)),
        label_sources=known.label_sources,
        stats=known.stats,
        results=known.results,
        neuronpedia=(pairing.neuronpedia.model_id, pairing.neuronpedia.sae_id)
        if pairing.neuronpedia
        else None,
        degraded=known.degraded,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What was measured about the SAE's features, as far as it is there and fits."""

    results: Results | None
    stats: CalibrationStats | None
    labels: dict[int, str]
    label_sources: dict[str, int]
    degraded: tuple[str, ...]


def find_known(settings: Settings, used: Fingerprint) -> Known:
    """Statistics and labels made from the model, SAE and layer in use; `degraded` says what is missing and why.

    Raises NeuroscopeError for a stats file that the user named and that does not fit.
    """
    mend = f"Make them with: NEUROSCOPE_PAIRING={settings.pairing.name} snakemake --cores 4 labels"
    degraded = []
    results: Results | None = None
    why = "The results hold none."
    try:
        results = _fitting_results(settings.results / "results.duckdb", used)
    except ArtefactError as error:
        why = str(error)
    stats = None
    if settings.ranking.stats is not None:
        stats = _own_stats(Path(settings.ranking.stats), used)
    elif results is not None:
        stats, note = _stats(results, settings.ranking.stratum)
        degraded += note
    if stats is None:
        degraded.append(f"The feature filter is off, there are no statistics. {why} {mend}")
    labels = results.labels() if results is not None else []
    if not labels:
        degraded.append(f"Features are shown by number, there are no labels. {why} {mend}")
    return Known(
        results=results,
        stats=stats,
        labels={row.feature: row.label for row in labels},
        label_sources=dict(Counter(row.source for row in labels)),
        degraded=tuple(degraded),
    )


def model_name(pairing: Pairing) -> str:
    """The id clients use: `org/name` on the hub, else the pairing's name."""
    kind, _, rest = pairing.model.partition("://")
    return rest.partition("@")[0] if kind == "hf" else pairing.name


def sae_name(pairing: Pairing) -> str:
    """`org/name/folder` on the hub, else the folder or file's own name: no path of this machine."""
    kind, _, rest = pairing.sae.uri.partition("://")
    if kind == "hf":
        return rest.partition("@")[0].removesuffix("/params.npz")
    path = Path(pairing.sae.uri)
    return path.parent.name if path.name == "params.npz" else path.stem


def _fitting_results(path: Path, used: Fingerprint) -> Results:
    from neuroscope.store import open_results

    results = open_results(path)
    if differences := results.fingerprint().mismatches(used):
        results.close()
        raise ArtefactError(f"{path.name} is about something else and not used ({'; '.join(differences)}).")
    return results


def _stats(results: Results, stratum: str) -> tuple[CalibrationStats, list[str]]:
    """The statistics of `stratum`, else those of all texts with a sentence that says so."""
    if stratum in results.strata():
        return results.stats(stratum), []
    note = f"The filter uses the statistics of all texts: there are none of the stratum {stratum!r} (ranking.stratum)."
    return results.stats("all"), [note]


def _own_stats(path: Path, used: Fingerprint) -> CalibrationStats:
    """A stats file the user named: one that cannot be right is an error, since it was asked for."""
    from neuroscope.stats import CalibrationStats

    stats = CalibrationStats.from_json(path)
    if stats.d_sae != used.d_sae:
        raise NeuroscopeError(f"{path} is about {stats.d_sae:,} features, the SAE in use has {used.d_sae:,}.")
    _refuse_foreign(path, used)
    return stats


def _refuse_foreign(path: Path, used: Fingerprint) -> None:
    from neuroscope.manifest import Fingerprint
    from neuroscope.stats import read_stats_document

    written: Any = read_stats_document(path).get("fingerprint")
    if written and (differences := Fingerprint.from_dict(written).mismatches(used)):
        raise NeuroscopeError(f"{path} is about something else: {'; '.join(differences)}.")
