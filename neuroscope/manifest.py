"""Who made an artefact: fingerprints, the manifest of a results folder, the revisions its sources were taken
at.

Equal width is not identity: results of another model, SAE or layer are recognised here by name. What a
program does about a mismatch is its own decision.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from neuroscope.errors import ArtefactError, SourceError, made_anew
from neuroscope.sources import Resolved, file_sha256, parse, read_text, replace_atomically, resolve

SCHEMA_VERSION = 1
"""Rises when artefacts of an older version cannot be read any more."""

MAX_BYTES = 64 << 20
"""Of a manifest: anything larger is another file."""

IDENTITY = (
    "model",
    "model_revision",
    "tokenizer_sha256",
    "sae_sha256",
    "layer",
    "d_in",
    "d_sae",
    "input_norm",
    "schema_version",
)
"""What must agree before one artefact is used with another. `sae` is a place; its bytes are what counts."""

_WORDS = {
    "model": "model",
    "model_revision": "model revision",
    "tokenizer_sha256": "tokenizer",
    "sae": "SAE source",
    "sae_sha256": "SAE file",
    "layer": "layer",
    "d_in": "model width (d_in)",
    "d_sae": "SAE width (d_sae)",
    "input_norm": "input norm",
    "corpus_sha256": "corpus",
    "sweep": "sweep",
    "schema_version": "schema version",
    "package_version": "Neuroscope version",
}


def package_version() -> str:
    """The installed version of this project."""
    try:
        return version("neuroscope-sae")
    except PackageNotFoundError:
        return "unknown"


def library_versions(names: Sequence[str] = ("torch", "transformers", "numpy")) -> dict[str, str]:
    """Versions of the libraries that float results depend on."""
    return {name: version(name) for name in names}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an artefact was made from."""

    model: str
    """Source name of the model."""
    model_revision: str | None
    """The hub's commit, or the SHA-256 of a single file; None for an unpinned folder."""
    tokenizer_sha256: str
    sae: str
    sae_sha256: str
    layer: int
    d_in: int
    d_sae: int
    input_norm: str = "none"
    """What happens to the residual before the SAE's weights."""
    corpus_sha256: str | None = None
    """None when the artefact is not about a corpus."""
    sweep: Mapping[str, Any] = field(default_factory=dict)
    """Everything float results depend on: batch, threads, dtype, device, window, bos, library versions."""
    schema_version: int = SCHEMA_VERSION
    package_version: str = field(default_factory=package_version)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sweep": dict(self.sweep)}

    def to_json(self) -> str:
        """One line, keys sorted: equal fingerprints are equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(
        cls, tree: Mapping[str, Any], *, of: str = "", remedy: str = "Make the results anew."
    ) -> Fingerprint:
        """Raises ArtefactError when a field is missing or unknown. `of` names the file, `remedy` what mends it."""
        known = {entry.name for entry in fields(cls)}
        if not isinstance(tree, Mapping) or (wrong := set(tree) ^ known):
            names = ", ".join(sorted(wrong)) if isinstance(tree, Mapping) else type(tree).__name__
            where = f" in {of}" if of else ""
            raise ArtefactError(
                f"A fingerprint{where} is not of this version (differs in: {names}). {remedy}"
            )
        return cls(**tree)

    @classmethod
    def from_json(cls, text: str) -> Fingerprint:
        try:
            tree = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArtefactError(f"A fingerprint is not JSON: {error}. Make the results anew.") from error
        return cls.from_dict(tree)

    def mismatches(self, other: Fingerprint, *, keys: Sequence[str] = IDENTITY) -> list[str]:
        """A sentence for each of `keys` in which the two differ; self is the artefact, `other` what is in
        use.
        """
        return [
            f"{_WORDS[key]}: made with {_shown(getattr(self, key))}, in use is {_shown(getattr(other, key))}"
            for key in keys
            if getattr(self, key) != getattr(other, key)
        ]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a results folder."""

    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a results folder holds, and who made it; `manifest.json`."""

    fingerprint: Fingerprint
    files: Mapping[str, FileEntry]

    @classmethod
    def of(cls, folder: Path, fingerprint: Fingerprint, rows: Mapping[str, int | None]) -> Manifest:
        """The manifest of the files named in `rows`, as they are now."""
        return cls(
            fingerprint, {name: FileEntry(file_sha256(folder / name), rows[name]) for name in sorted(rows)}
        )

    def write(self, path: Path) -> None:
        """Last of all files: it vouches for the others."""
        tree = {
            "fingerprint": self.fingerprint.to_dict(),
            "files": {name: asdict(entry) for name, entry in sorted(self.files.items())},
        }
        with replace_atomically(path) as temporary:
            temporary.write_text(
                json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8"
            )

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Raises ArtefactError when it is missing or not a manifest."""
        tree = _read_json(path, made_anew(), missing="Make the results with `snakemake --cores 4 labels`.")
        try:
            files = {name: FileEntry(**entry) for name, entry in tree["files"].items()}
            made_by = Fingerprint.from_dict(tree["fingerprint"], of=str(path), remedy=made_anew())
            return cls(made_by, files)
        except (KeyError, TypeError, AttributeError) as error:
            raise ArtefactError(f"{path} is not a manifest ({error}). {made_anew()}") from error

    def check(
        self,
        folder: Path,
        names: Sequence[str] | None = None,
        *,
        sha256_of: Callable[[Path], str] = file_sha256,
    ) -> None:
        """Raises ArtefactError that names the first of `names` (default: all) that is missing or has other
        bytes.
        """
        for name in self.files if names is None else names:
            entry = self.files.get(name)
            if entry is None or not os.path.isfile(folder / name):
                raise ArtefactError(
                    f"{folder / name} is missing. Make the results anew with `snakemake --cores 4 labels`."
                )
            try:
                found = sha256_of(folder / name)
            except OSError as error:
                raise ArtefactError(
                    f"{folder / name} cannot be read: {error.strerror}. {made_anew()}"
                ) from error
            if found != entry.sha256:
                raise ArtefactError(
                    f"{folder / name} is not the file that manifest.json describes: it was changed or "
                    f"damaged. {made_anew()}"
                )


@dataclass(frozen=True, slots=True)
class SourcesLock:
    """The commit each hub source was first taken at, in `sources.lock.json`; from then on that one."""

    path: Path

    def resolve(
        self, uri: str, *, update: bool = False, progress: bool = True, cache: Path | None = None
    ) -> Resolved:
        """As `sources.resolve`, at the recorded commit; `update` takes the newest one and records it."""
        source = parse(uri)
        if source.kind != "hf":
            return resolve(uri, cache=cache, progress=progress)
        recorded = None if update else self.revisions().get(uri)
        if recorded is None:
            found = resolve(uri, cache=cache, progress=progress)
            if found.revision is not None:
                self._record(uri, found.revision)
            return found
        try:
            return resolve(source.at(recorded), cache=cache, progress=progress)
        except SourceError as error:
            raise SourceError(
                f"{error}\nThe commit {recorded} is recorded in {self.path}; "
                "`neuroscope models pull PAIRING --update` (`sae pull` for an SAE) takes the newest one instead."
            ) from error

    def revisions(self) -> dict[str, str]:
        """Recorded commits by source name; empty before the first."""
        if not self.path.exists():
            return {}
        tree = _read_json(self.path, "Delete it: the revisions are then resolved anew.")
        return {str(uri): str(revision) for uri, revision in tree.items()}

    def _record(self, uri: str, revision: str) -> None:
        with self._held():
            revisions = {**self.revisions(), uri: revision}
            with replace_atomically(self.path) as temporary:
                temporary.write_text(json.dumps(revisions, indent=2, sort_keys=True) + "\n", "utf-8")

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Rules that run side by side record one after the other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _read_json(path: Path, remedy: str, *, missing: str = "") -> dict[str, Any]:
    try:
        tree = json.loads(read_text(path, at_most=MAX_BYTES))
    except FileNotFoundError as error:
        raise ArtefactError(f"{path} is missing. {missing or remedy}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}. {remedy}") from error
    if not isinstance(tree, dict):
        raise ArtefactError(f"{path} must hold an object, found a {type(tree).__name__}. {remedy}")
    return tree


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 90 else f"{text[:87]}..."
