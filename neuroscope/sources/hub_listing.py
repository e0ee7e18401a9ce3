"""The files of a repository on the hub, without any of their bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from neuroscope.sources.hub_errors import client_errors, explain_listing
from neuroscope.sources.uri import Source, parse


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository's files."""

    repository: str
    sizes: dict[str, int]
    """Path -> bytes."""


def listing(uri: str) -> Listing:
    """The files of the repository that the hub source `uri` lies in, at its revision: one question to the hub
    (a page of it for every thousand files or so).

    Raises SourceError: missing, gated, unreachable or offline, each with what to do.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    source = parse(uri)
    repository = Source(uri, "hf", source.name, revision=source.revision, dataset=source.dataset)
    kind = "dataset" if source.dataset else "model"
    expected: tuple[type[Exception], ...] = (*client_errors(), json.JSONDecodeError)
    try:
        entries = list(
            HfApi().list_repo_tree(source.name, recursive=True, revision=source.revision, repo_type=kind)
        )
    except expected as error:
        raise explain_listing(error, repository) from error
    return Listing(source.name, {entry.path: entry.size for entry in entries if isinstance(entry, RepoFile)})
