"""What went wrong at the hub, in words, with the next command."""

from __future__ import annotations

import difflib
import errno
import json
from itertools import takewhile
from typing import Any

from neuroscope.errors import SourceError
from neuroscope.sources.uri import Source

WITHOUT_THE_HUB = (
    "Without an account or the hub: NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 8 labels, "
    "then NEUROSCOPE_PAIRING=smollm2-135m gunicorn neuroscope.wsgi"
)

_NOT_A_HUB = "{} answers, but not as a model hub (an HTML page or a proxy's answer)"


def client_errors() -> tuple[type[Exception], ...]:
    """What the hub's client raises for an expected failure, whichever HTTP library it is built on.

    RuntimeError is what the library of the hub's own storage (hf_xet) raises for any failure.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    http_error = HfHubHTTPError.__bases__[0]
    return (http_error, OSError, HFValidationError, UserWarning, RuntimeError)


def is_cut_connection(error: Exception) -> bool:
    """Whether the network failed while the hub was talking, so that trying again may help."""
    from huggingface_hub.errors import HfHubHTTPError

    http_error = HfHubHTTPError.__bases__[0]
    return isinstance(error, http_error) and not isinstance(error, HfHubHTTPError)


def explain(error: Exception, source: Source) -> SourceError:
    """The SourceError for what the client raised."""
    from huggingface_hub import errors

    explanations = (
        (errors.GatedRepoError, _gated),
        (errors.RepositoryNotFoundError, _unknown_repository),
        (errors.RevisionNotFoundError, _unknown_revision),
        (errors.LocalEntryNotFoundError, _unreachable),
        (errors.EntryNotFoundError, _unknown_file),
        (errors.HfHubHTTPError, _refused),
        (errors.HFValidationError, _impossible_name),
        (UserWarning, _full_disk),
        (PermissionError, _unwritable_cache),
        (RuntimeError, _storage_failed),
        (Exception, _broken_off),
    )
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return _full_disk(error, source)
    return next(explanation(error, source) for kind, explanation in explanations if isinstance(error, kind))


def explain_listing(error: Exception, source: Source) -> SourceError:
    """As `explain`, for a listing, which no cache can answer."""
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return SourceError(
            f"{source.uri}: only the hub knows what a repository holds, and HF_HUB_OFFLINE forbids to ask it. "
            "Run once with HF_HUB_OFFLINE=0; `neuroscope sae list` without --remote shows what is here."
        )
    if is_cut_connection(error):
        return SourceError(
            f"{source.uri}: the hub at {constants.ENDPOINT} cannot be reached ({type(error).__name__}: "
            f"{_first_line(error)}). Check the network and HF_ENDPOINT, then run the same command again; "
            "`neuroscope sae list` without --remote shows what is here."
        )
    if isinstance(error, json.JSONDecodeError):
        return SourceError(
            f"{source.uri}: {_NOT_A_HUB.format(constants.ENDPOINT)}. Check HF_ENDPOINT and the proxy."
        )
    return explain(error, source)


def missing_file(source: Source) -> SourceError:
    """The message for a path that the repository lacks, with the closest ones it has."""
    near = _closest(source.path or "", _repository_files(source))
    hint = f"The closest there: {', '.join(near)}." if near else f"See {web_page(source)}/tree/main."
    return SourceError(f"{source.uri}: the repository has no {source.path!r}. {hint}")


def web_page(source: Source) -> str:
    """Where a person reads about the repository and accepts its licence."""
    return f"https://huggingface.co/{'datasets/' if source.dataset else ''}{source.name}"


def _gated(_error: Exception, source: Source) -> SourceError:
    from huggingface_hub import get_token

    state = "no token is set" if get_token() is None else "the token that is set has no access to it"
    return SourceError(
        f"{source.uri}: the repository is gated and {state}. Accept the licence at {web_page(source)} and "
        "set HF_TOKEN to a token of that account (https://huggingface.co/settings/tokens).\n"
        f"{WITHOUT_THE_HUB}"
    )


def _unknown_repository(_error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: there is no repository {source.name!r} on the hub, or it is private. Check the name "
        f"at {web_page(source)}; for a private one set HF_TOKEN.\n{WITHOUT_THE_HUB}"
    )


def _unknown_revision(_error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: the repository has no revision {source.revision or 'main'!r}. "
        f"{web_page(source)}/tree/main lists its branches and commits."
    )


def _unknown_file(_error: Exception, source: Source) -> SourceError:
    return missing_file(source)


def _unreachable(error: Exception, source: Source) -> SourceError:
    from huggingface_hub import constants
    from huggingface_hub.errors import FileMetadataError, HfHubHTTPError, OfflineModeIsEnabled

    cause = error.__cause__
    if constants.HF_HUB_OFFLINE or isinstance(cause, OfflineModeIsEnabled):
        reason = f"not in the cache ({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE forbids to fetch it"
        remedy = "Run once with HF_HUB_OFFLINE=0"
    elif isinstance(cause, FileMetadataError):
        reason = _NOT_A_HUB.format(constants.ENDPOINT)
        remedy = "Check HF_ENDPOINT and the proxy"
    elif isinstance(cause, HfHubHTTPError):
        return _refused(cause, source)
    else:
        detail = f" ({type(cause).__name__}: {_first_line(cause)})" if cause else ""
        reason = f"the hub at {constants.ENDPOINT} cannot be reached{detail}, and the cache lacks it"
        remedy = "Check the network and HF_ENDPOINT, then run the same command again"
    return SourceError(f"{source.uri}: {reason}. {remedy}.\n{WITHOUT_THE_HUB}")


def _refused(error: Exception, source: Source) -> SourceError:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status in (401, 403):
        return SourceError(
            f"{source.uri}: the hub refuses access ({status}). Set HF_TOKEN to a valid token "
            "(https://huggingface.co/settings/tokens) of an account that may read "
            f"{web_page(source)}.\n{WITHOUT_THE_HUB}"
        )
    if status == 429:
        return SourceError(
            f"{source.uri}: the hub limits how often it may be asked, and the limit is reached (429). "
            f"{_when_again(response)}; with HF_TOKEN set the limit is higher.\n{WITHOUT_THE_HUB}"
        )
    return SourceError(
        f"{source.uri}: the hub answers {status}: {_first_line(error)}. Run the same command again later.\n"
        f"{WITHOUT_THE_HUB}"
    )


def _when_again(response: Any) -> str:
    seconds = str(response.headers.get("Retry-After", ""))
    wait = f"in {seconds} seconds" if seconds.isdigit() else "in a few minutes"
    return f"Run the same command again {wait}"


def _impossible_name(error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: {source.name!r} cannot be the name of a repository: {_first_line(error)}"
    )


def _full_disk(error: Exception, source: Source) -> SourceError:
    from huggingface_hub import constants

    return SourceError(
        f"{source.uri}: the disk of the hub's cache ({constants.HF_HUB_CACHE}) is full: {_first_line(error)}."
        " Free some space, or set HF_HOME to a folder on another disk, and run the same command again."
    )


def _unwritable_cache(error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: the hub's cache cannot be written ({error}). Set HF_HOME to a folder of yours."
    )


def _storage_failed(error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: the hub's storage for large files (Xet) failed: {_first_line(error)}. Nothing "
        "half-written was kept. Run the same command again; if it stays so, HF_HUB_DISABLE_XET=1 fetches the "
        "bytes by plain HTTP."
    )


def _broken_off(error: Exception, source: Source) -> SourceError:
    return SourceError(
        f"{source.uri}: the download broke off ({type(error).__name__}: {_first_line(error)}). Nothing "
        "half-written was kept under the file's name. Run the same command again."
    )


def _repository_files(source: Source) -> list[str]:
    """Every path of the repository; none when it cannot be listed, since the listing only helps a message."""
    from huggingface_hub import HfApi

    try:
        kind = "dataset" if source.dataset else "model"
        return list(HfApi().list_repo_files(source.name, repo_type=kind, revision=source.revision))
    except client_errors():
        return []


def _closest(path: str, names: list[str]) -> list[str]:
    """Up to five names: those that share the most folders first, then by likeness."""
    likeness = difflib.SequenceMatcher(b=path)

    def rank(name: str) -> tuple[int, float, str]:
        likeness.set_seq1(name)
        pairs = zip(name.split("/"), path.split("/"), strict=False)
        shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return (-shared, -likeness.ratio(), name)

    return sorted(names, key=rank)[:5]


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
