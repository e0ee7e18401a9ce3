"""The shape of the package: imports point down, they make no circle, third-party packages have owners.

Read from the sources, not from what happens to be imported. A new module without a place in LAYERS fails.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "neuroscope"

LAYERS = {
    "alignment": 1,
    "disk": 1,
    "errors": 1,
    "events": 1,
    "memory": 1,
    "native": 1,
    "sources": 1,
    "large_pages": 2,
    "sae": 2,
    "models": 2,
    "stats": 2,
    "ranking": 2,
    "corpus": 3,
    "examples": 3,
    "label_export": 3,
    "label_files": 3,
    "imported": 3,
    "labels": 3,
    "pairing_sae": 3,
    "recording": 3,
    "sessions": 3,
    "steps": 3,
    "diff": 3,
    "store": 3,
    "identity": 3,
    "manifest": 3,
    "verification": 3,
    "settings": 3,
    "sweep": 4,
    "training": 4,
    "autointerp": 4,
    "client": 4,
    "neuronpedia": 4,
    "engine": 4,
    "prefill": 4,
    "prefix": 4,
    "report": 4,
    "scoring": 4,
    "known": 4,
    "verify": 4,
    "scope": 4,
    "server": 5,
    "wsgi": 5,
    "stages": 5,
    "jobs": 5,
    "cache": 5,
    "doctor": 5,
    "cli": 5,
}
"""First part of a module's name -> layer. 1 words, 2 numerics, 3 records, 4 processes, 5 edges."""

OFFLINE = {"sweep", "training", "autointerp", "corpus", "jobs", "neuronpedia", "report", "verify"}
ONLINE = {"engine", "prefill", "prefix", "scoring", "server", "steps", "wsgi"}
"""The two halves meet in files: neither imports the other."""

OWNERS = {
    "anthropic": ("autointerp",),
    "click": ("cli",),
    "duckdb": ("store",),
    "flask": ("server", "wsgi"),
    "flask_sock": ("server",),
    "gevent": ("server", "wsgi"),
    "gguf": ("models",),
    "gunicorn": ("server", "wsgi"),
    "httpx2": ("client",),
    "huggingface_hub": ("sources",),
    "jsonschema": ("settings",),
    "llama_cpp": ("models",),
    "matplotlib": ("report",),
    "prometheus_client": ("server",),
    "pythonjsonlogger": ("server",),
    "simple_websocket": ("server",),
    "tokenizers": ("models",),
    "wsproto": ("server",),
}
"""Third-party package -> the only parts that may import it."""

LOWEST = {"torch": 2, "transformers": 2, "numpy": 2, "polars": 3, "tqdm": 1, "yaml": 3}
"""Third-party package -> the lowest layer that may import it."""


def modules() -> dict[str, Path]:
    """Dotted name below `neuroscope` (empty for the package itself) -> file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


@cache
def imports(name: str, *, everywhere: bool = True) -> frozenset[str]:
    """Dotted names that a module imports; with `everywhere` also inside functions and TYPE_CHECKING."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    known = {f"neuroscope.{module}" for module in MODULES}
    found: set[str] = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import; write the whole name"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & known or {node.module}
    return frozenset(found)


def own_imports(name: str, *, everywhere: bool = True) -> set[str]:
    """Modules of this package that a module imports, named below `neuroscope`."""
    found = set()
    for imported in imports(name, everywhere=everywhere):
        if imported == "neuroscope" or imported.startswith("neuroscope."):
            found.add(imported.removeprefix("neuroscope").removeprefix("."))
    return found


def third_party(name: str) -> set[str]:
    """Top names of everything that a module imports."""
    return {imported.partition(".")[0] for imported in imports(name)}


def part(name: str) -> str:
    """`server` of `server.gate`."""
    return name.partition(".")[0]


def test_every_module_has_a_layer() -> None:
    homeless = [name for name in MODULES if name and part(name) not in LAYERS]
    assert not homeless, f"{homeless} have no place in LAYERS of tests/test_layers.py"


def test_imports_point_down() -> None:
    upward = [
        f"{name} (layer {LAYERS[part(name)]}) imports {imported}"
        for name in MODULES
        for imported in own_imports(name)
        if name and imported and LAYERS[part(imported)] > LAYERS[part(name)]
    ]
    assert not upward


def test_modules_import_modules_and_not_the_package() -> None:
    """The package's public names are for users; a module that used them would import everything."""
    assert not [name for name in MODULES if name and "" in own_imports(name)]


def test_imports_make_no_circle() -> None:
    graph = {name: own_imports(name, everywhere=False) - {name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"circle: {' -> '.join((*path[path.index(name) :], name))}"
        if name in done:
            return
        for imported in graph.get(name, ()):
            # A package's __init__ gathers its own modules; a module that imports a sibling is no circle.
            if not name.startswith(f"{imported}."):
                visit(imported, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_the_offline_and_the_online_half_meet_in_files() -> None:
    crossing = [
        f"{name} imports {imported}"
        for one, other in ((OFFLINE, ONLINE), (ONLINE, OFFLINE))
        for name in MODULES
        for imported in own_imports(name)
        if part(name) in one and part(imported) in other
    ]
    assert not crossing


def test_third_party_packages_stay_with_their_owners() -> None:
    strayed = [
        f"{name} imports {package}; only {OWNERS[package]} may"
        for name in MODULES
        for package in third_party(name)
        if package in OWNERS and part(name) not in OWNERS[package]
    ]
    assert not strayed


def test_heavy_packages_stay_above_their_layer() -> None:
    sunk = [
        f"{name} (layer {LAYERS[part(name)]}) imports {package}"
        for name in MODULES
        for package in third_party(name)
        if name and LAYERS[part(name)] < LOWEST.get(package, 1)
    ]
    assert not sunk


def test_one_file_talks_to_anthropic() -> None:
    files = [name for name in MODULES if any(imported.startswith("anthropic") for imported in imports(name))]
    assert len(files) <= 1, f"anthropic is imported by {files}"


@pytest.mark.parametrize(
    "script", sorted((ROOT / "workflow/scripts").glob("*.py")), ids=lambda path: path.stem
)
def test_a_script_is_imports_and_one_call(script: Path) -> None:
    docstring, *body = ast.parse(script.read_text(encoding="utf-8")).body
    assert isinstance(docstring, ast.Expr), "a docstring first"
    assert isinstance(docstring.value, ast.Constant)
    *above, call = body
    assert all(isinstance(node, ast.Import | ast.ImportFrom) for node in above)
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    job = call.value.args[0]
    assert isinstance(job, ast.Constant), "the job is named: what it imports takes seconds"
    module, _, function = str(job.value).removeprefix("neuroscope.").partition(":")
    defined = ast.parse(MODULES[module].read_text(encoding="utf-8")).body
    names = {alias.name for node in defined if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert function in names | {node.name for node in defined if isinstance(node, ast.FunctionDef)}


def test_test_modules_have_names_of_their_own() -> None:
    """Pytest imports a module of a folder without `__init__.py` by its bare name: two of one name end the whole run."""
    found = [
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert [name for name in set(found) if found.count(name) > 1] == []
