"""Shows what a local language model is thinking while it writes.

The public names, for scripts and notebooks; each is imported when it is first used.

    sae = neuroscope.load_sae("params.npz")
    scope = neuroscope.load("smollm2-135m")
    for step in scope.generate([{"role": "user", "content": "Hello"}], max_tokens=50):
        print(step.token, step.features)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuroscope.manifest import package_version
    from neuroscope.sae import load_sae
    from neuroscope.scope import load

    __version__ = package_version()

__all__ = ["__version__", "load", "load_sae"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from neuroscope.scope import load

        return load
    if name == "load_sae":
        from neuroscope.sae import load_sae

        return load_sae
    if name == "__version__":
        from neuroscope.manifest import package_version

        return package_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
