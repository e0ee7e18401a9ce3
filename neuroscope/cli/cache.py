"""`neuroscope cache`: what was fetched and made once, how large it is, and removing it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from neuroscope.cli.flags import as_json
from neuroscope.cli.output import human_bytes, print_json, show
from neuroscope.cli.terminal import can_ask, confirm, visible
from neuroscope.errors import NeuroscopeError, SourceError

if TYPE_CHECKING:
    from neuroscope.cache import Entry


@click.group()
def cache() -> None:
    """What was fetched and made once, and can be again: sizes, and removing it. Results are no part of it."""


@cache.command("show")
@as_json
def show_cache(as_json: bool) -> None:
    """Each entry with its size, when it was last used, and the pairings that use it.

    Repositories of the hub are listed where a configured pairing names them; other programs use them too.
    """
    from neuroscope.cache import find_entries

    entries = find_entries()
    show([_row(entry, as_json) for entry in entries], as_json=as_json, empty="Nothing is cached.")
    if entries and not as_json:
        click.echo(f"{human_bytes(sum(entry.size for entry in entries))} in all.", err=True)


def _complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of entries; none where the cache cannot be read, since completion has nobody to tell."""
    from neuroscope.cache import find_entries

    try:
        return [CompletionItem(entry.name) for entry in find_entries() if entry.name.startswith(begun)]
    except (NeuroscopeError, OSError, RuntimeError):
        return []


@cache.command("clear")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete)
@click.option("--pairing", help="Everything that this pairing alone uses.")
@click.option("--all", "everything", is_flag=True, help="Everything that `cache show` lists.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@as_json
def clear_cache(
    names: tuple[str, ...], pairing: str | None, everything: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Remove entries by NAME as `cache show` lists them, of one pairing, or all. Asks first.

    What a server, a run or another process holds is kept, and said. Results are never touched.
    """
    from neuroscope.cache import find_entries, held_by

    if sum((bool(names), pairing is not None, everything)) != 1:
        raise click.UsageError("Say what to remove: NAMEs, --pairing or --all, one of the three.")
    asked, kept = _chosen(find_entries(), names, pairing)
    holders = held_by(asked)
    kept |= holders
    entries = [entry for entry in asked if entry.name not in kept]
    if not as_json:
        _tell(entries, kept)
    if entries and not dry_run and not yes:
        _ask(entries)
    removed, failures = ([], []) if dry_run else _clear(entries)
    if as_json:
        freed = sum(row["freed"] for row in removed)
        print_json(
            {
                "dry_run": dry_run,
                "removed": removed,
                "would_remove": [_row(entry, True) for entry in entries] if dry_run else [],
                "kept": [{"name": name, "reason": reason} for name, reason in kept.items()],
                "failed": failures,
                "freed": freed,
            }
        )
    elif not dry_run:
        click.echo(f"{human_bytes(sum(row['freed'] for row in removed))} freed.")
    for message in failures:
        click.echo(f"neuroscope: {visible(message)}", err=True)
    if failures or (names and holders):
        raise click.exceptions.Exit(1)


def _chosen(
    entries: Sequence[Entry], names: tuple[str, ...], pairing: str | None
) -> tuple[list[Entry], dict[str, str]]:
    """The entries that are asked for, and those that are kept for other pairings, with the reason.

    Raises SourceError for a name that is no entry's, ConfigError for a pairing that is none.
    """
    if pairing is not None:
        from neuroscope import settings

        settings.load_pairing(pairing)
        own = [entry for entry in entries if pairing in entry.pairings]
        others = {
            entry.name: f"also used by {', '.join(name for name in entry.pairings if name != pairing)}"
            for entry in own
            if len(entry.pairings) > 1
        }
        return own, others
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise SourceError(f"{name!r} is no entry of the cache. {hint}`neuroscope cache show` lists them.")
    return [known[name] for name in dict.fromkeys(names)] if names else list(entries), {}


def _tell(entries: Sequence[Entry], kept: dict[str, str]) -> None:
    for entry in entries:
        shared = ", which other programs may use too" if entry.shared else ""
        click.echo(f"{human_bytes(entry.size):>8}  {visible(entry.name)} ({entry.kind}{shared})", err=True)
    for name, reason in kept.items():
        click.echo(f"    kept  {visible(name)}: {reason}", err=True)
    if not entries:
        click.echo("Nothing to remove.", err=True)


def _ask(entries: Sequence[Entry]) -> None:
    """Raises UsageError where nobody can answer, Exit when the answer is no, Abort on Ctrl-C."""
    if not can_ask():
        raise click.UsageError("Nobody can be asked here: add --yes to remove, or --dry-run to look.")
    size = human_bytes(sum(entry.size for entry in entries))
    if not confirm(f"Remove {len(entries)} entries, {size}?"):
        click.echo("Nothing was removed.", err=True)
        raise click.exceptions.Exit(1)


def _clear(entries: Sequence[Entry]) -> tuple[list[dict[str, Any]], list[str]]:
    from neuroscope.cache import clear

    removed, failures = [], []
    for entry in entries:
        try:
            removed.append({"name": entry.name, "freed": clear(entry)})
        except SourceError as error:  # the others are still to go
            failures.append(str(error))
    return removed, failures


def _row(entry: Entry, as_json: bool) -> dict[str, Any]:
    used = datetime.fromtimestamp(entry.used_at).astimezone() if entry.used_at else None
    row = {
        "name": entry.name,
        "kind": entry.kind,
        "size": entry.size if as_json else human_bytes(entry.size),
        "last_used": used and (used.isoformat(timespec="seconds") if as_json else f"{used:%Y-%m-%d}"),
        "pairings": list(entry.pairings) if as_json else ", ".join(entry.pairings) or None,
    }
    return row | {"shared": entry.shared, "paths": [str(path) for path in entry.paths]} if as_json else row
