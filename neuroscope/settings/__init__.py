"""What the user settled: config.yaml, the pairing, the environment and the flags, as one frozen record.

Precedence: flags (overrides), config.yaml, the pairing's `defaults`, the schema's built-in values. Keys and
tokens are not settings: they are read from the environment where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuroscope.errors import ConfigError
from neuroscope.settings.backends import choose_backend
from neuroscope.settings.pairing import pairing_names, read_pairing, replace_fields
from neuroscope.settings.schema import Tree, check, defaults, merge, nest, read_schema, read_yaml
from neuroscope.settings.values import (
    CLAUDE,
    Calibration,
    ChatCorpus,
    Corpus,
    CorpusSource,
    Examples,
    Labels,
    Neuronpedia,
    Pairing,
    Prices,
    Publication,
    Published,
    RankingDefaults,
    SaeSource,
    Serve,
    Settings,
    Sweep,
    Training,
    Verify,
)

__all__ = [
    "Calibration",
    "ChatCorpus",
    "Corpus",
    "CorpusSource",
    "Examples",
    "Labels",
    "Neuronpedia",
    "Pairing",
    "Prices",
    "Publication",
    "Published",
    "RankingDefaults",
    "SaeSource",
    "Serve",
    "Settings",
    "Sweep",
    "Training",
    "Verify",
    "choose_pairing",
    "from_snakemake",
    "load",
    "load_pairing",
    "more_allowed_hosts",
    "pairings",
    "repository_root",
    "results_folder",
]


def load(
    pairing: str | None = None, *, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from config.yaml (`config`, else NEUROSCOPE_CONFIG, else the repository's).

    The pairing is the argument's, else NEUROSCOPE_PAIRING's, else the file's. `overrides` has dotted keys
    (`{"serve.port": 9000}`); None among its values means "not given". Raises ConfigError that names the key.
    """
    root = repository_root(config)
    path = config_path(root, config)
    schema = _schema(root)
    tree = read_yaml(path)
    check(tree, schema, origin=str(path))
    given = nest({key: value for key, value in (overrides or {}).items() if value is not None}, schema)
    check(given, schema, origin="overrides")
    name = pairing or given.get("pairing") or os.environ.get("NEUROSCOPE_PAIRING") or tree.get("pairing")
    return _settle(name, merge(tree, given), root)


def choose_pairing(asked: Mapping[str, Any]) -> None:
    """Makes the pairing that `--config` or `--configfile` names the environment's, if they name one.

    `asked` is what Snakemake was given on its command line, before config.yaml. A job reads the merged mapping, which
    no longer says who named the pairing; the environment is what it inherits.
    """
    if isinstance(name := asked.get("pairing"), str):
        os.environ["NEUROSCOPE_PAIRING"] = name


def from_snakemake(
    config: Mapping[str, Any], pairing: str | None = None, *, files: Iterable[str] = ()
) -> Settings:
    """Settings from the mapping that Snakemake merged from config.yaml, --configfile and --config.

    NEUROSCOPE_PAIRING counts unless --config names another pairing than config.yaml does. Rules pass
    `pairing` from their wildcard, so that a job on another machine does not depend on the environment it was
    submitted from. `files` are those that Snakemake read: it keeps the last of two equal keys, here they are refused.
    """
    root = repository_root(None)
    for file in files:
        if Path(file).suffix in {".yaml", ".yml"}:
            read_yaml(Path(file))
    tree = {key: _plain(value) for key, value in config.items()}
    check(tree, _schema(root), origin="config")
    if pairing is None:
        on_file = read_yaml(config_path(root, None)).get("pairing")
        pairing = tree.get("pairing")
        if pairing in (None, on_file):
            pairing = os.environ.get("NEUROSCOPE_PAIRING") or on_file
    return _settle(pairing, tree, root)


def more_allowed_hosts() -> tuple[str, ...]:
    """The names in NEUROSCOPE_ALLOWED_HOSTS, with commas between. Raises ConfigError as for serve.allowed_hosts."""
    names = [name.strip() for name in os.environ.get("NEUROSCOPE_ALLOWED_HOSTS", "").split(",")]
    names = [name for name in names if name]
    tree = {"serve": {"allowed_hosts": names}}
    check(tree, _schema(repository_root(None)), origin="NEUROSCOPE_ALLOWED_HOSTS")
    return tuple(names)


def pairings() -> list[str]:
    """Names of the pairings there are, sorted."""
    return pairing_names(repository_root(None))


def load_pairing(name: str) -> Pairing:
    """A pairing by name. Raises ConfigError that names the known ones."""
    return read_pairing(name, repository_root(None))[0]


def results_folder(name: str) -> Path:
    """Absolute folder of a pairing's results, whatever else config.yaml changes about the pairing in use."""
    root = repository_root(None)
    tree = read_yaml(config_path(root, None))
    check(tree, _schema(root), origin=str(config_path(root, None)))
    return _results(merge(defaults(_schema(root)), read_pairing(name, root)[1], tree), name, root)


def repository_root(config: Path | None = None) -> Path:
    """The folder that holds config/config.yaml: above `config`, above the working directory, or beside the
    package.
    """
    chosen = config or (Path(found) if (found := os.environ.get("NEUROSCOPE_CONFIG")) else None)
    starts = [Path(chosen).expanduser().absolute().parent] if chosen else []
    starts += [Path.cwd(), Path(__file__).absolute().parents[2]]
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / "config/config.yaml").is_file() and (folder / "workflow/schemas").is_dir():
                return folder
    raise ConfigError(
        "config/config.yaml was not found above the working directory. Run from a clone of the repository, "
        "or set NEUROSCOPE_CONFIG to a config.yaml inside one."
    )


def config_path(root: Path, config: Path | None) -> Path:
    """The configuration file in use."""
    if config is not None:
        return Path(config).expanduser()
    if named := os.environ.get("NEUROSCOPE_CONFIG"):
        return Path(named).expanduser()
    return root / "config/config.yaml"


def _schema(root: Path) -> Tree:
    return read_schema(root / "workflow/schemas/config.schema.yaml")


def _settle(name: str | None, tree: Mapping[str, Any], root: Path) -> Settings:
    builtin = defaults(_schema(root))
    pairing, of_pairing = read_pairing(name or builtin["pairing"], root)
    full = merge(builtin, of_pairing, tree)
    pairing = replace_fields(pairing, full, root)
    backend, quantization = choose_backend(full["backend"], full["quantization"])
    return Settings(
        root=root,
        pairing=pairing,
        device=full["device"],
        backend=backend,
        quantization=quantization,
        results=_results(full, pairing.name, root),
        corpus=_corpus(full["corpus"], root),
        calibration=Calibration(**full["calibration"]),
        examples=Examples(**full["examples"]),
        sweep=Sweep(**full["sweep"]),
        training=Training(**full["training"]),
        verify=Verify(**full["verify"]),
        labels=_labels(full["labels"], root),
        neuronpedia=Publication(**full["neuronpedia"]),
        ranking=RankingDefaults(**{**full["ranking"], "stats": _path(full["ranking"]["stats"], root)}),
        serve=_serve(full["serve"]),
    )


def _results(full: Tree, name: str, root: Path) -> Path:
    return root / Path(full["results"].replace("{pairing}", name)).expanduser()


def _corpus(tree: Tree, root: Path) -> Corpus:
    own = tree["path"] is not None
    return Corpus(
        path=_path(tree["path"], root),
        sources=() if own else tuple(_source(source, root) for source in tree["sources"]),
        chat=None if own or not tree["chat"]["documents"] else ChatCorpus(**tree["chat"]),
        document_chars=tree["document_chars"],
        seed=tree["seed"],
    )


def _labels(tree: Tree, root: Path) -> Labels:
    needed = {"openai": ("model", "base_url"), "file": ("file",)}.get(tree["labeler"], ())
    if missing := [f"labels.{name}" for name in needed if tree[name] is None]:
        raise ConfigError(
            f"labels.labeler is {tree['labeler']}, which needs {' and '.join(missing)}: set it."
        )
    if tree["scorer"] == "openai" and (open_ := [n for n in ("model", "base_url") if tree[n] is None]):
        raise ConfigError(
            f"labels.scorer is openai, which needs {' and '.join(f'labels.{name}' for name in open_)}: set it."
        )
    given = [name for name, value in tree["prices"].items() if value is not None]
    if len(given) == 1:
        raise ConfigError(f"labels.prices.{given[0]} is set alone: set both labels.prices.input and .output.")
    prices = Prices(**tree["prices"])
    asked = {name: CLAUDE if tree[name] == "claude" else tree[name] for name in ("labeler", "scorer")}
    labels = Labels(**{**_frozen(tree), **asked, "prices": prices, "file": _path(tree["file"], root)})
    if labels.source not in (*labels.priority, "tokens"):
        raise ConfigError(
            f"labels.priority lacks {labels.source}, so the labels of labels.labeler would be shown nowhere: add it."
        )
    return labels


def _source(tree: Tree, root: Path) -> CorpusSource:
    """A source whose plain path, if it is one, is relative to the repository."""
    source = CorpusSource(**tree)
    return (
        source
        if ":" in source.source
        else replace(source, source=str(root / Path(source.source).expanduser()))
    )


def _serve(tree: Tree) -> Serve:
    if tree["port"] == tree["features_port"]:
        raise ConfigError(
            f"serve.port and serve.features_port are both {tree['port']}: the chat API and the features "
            "stream need a port each."
        )
    return Serve(**_frozen(tree))


def _path(name: str | None, root: Path) -> str | None:
    """A path of the user's, relative to the repository."""
    return None if name is None else str(root / Path(name).expanduser())


def _frozen(tree: Tree) -> Tree:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in tree.items()}


def _plain(value: Any) -> Any:
    """Snakemake's own mapping types as plain ones."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
