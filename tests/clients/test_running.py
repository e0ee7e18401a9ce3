"""A client that is not installed is a failure with the command that installs it, and never a test left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import running


def test_a_missing_package_is_named_with_the_command() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no_such_client is not installed\. Run `make clients`"):
        running.need("json", "no_such_client")


def test_missing_or_old_javascript_packages_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, installed = tmp_path / "package-lock.json", tmp_path / "node_modules/.package-lock.json"
    monkeypatch.setattr(running, "NODE", tmp_path)
    lock.write_text('{"packages": {"": {}, "node_modules/a": {"version": "2"}}}')
    installed.parent.mkdir()
    for before in ("missing", "older"):
        if before == "older":
            installed.write_text('{"packages": {"node_modules/a": {"version": "1"}}}')
        with pytest.raises(pytest.fail.Exception, match="Run `make clients`"):
            running.node("openai.mjs")
    installed.write_text('{"packages": {"node_modules/a": {"version": "2"}}}')
    assert running.node("openai.mjs")[1] == str(tmp_path / "openai.mjs")


def test_a_javascript_package_for_other_machines_may_be_missing_but_not_be_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "NODE", tmp_path)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "package-lock.json").write_text(
        '{"packages": {"node_modules/a": {"version": "2"}, "node_modules/b": {"version": "2", "optional": true}}}'
    )
    installed = tmp_path / "node_modules/.package-lock.json"
    installed.write_text('{"packages": {"node_modules/a": {"version": "2"}}}')
    assert running.node("openai.mjs")
    installed.write_text(
        '{"packages": {"node_modules/a": {"version": "2"}, "node_modules/b": {"version": "1"}}}'
    )
    with pytest.raises(pytest.fail.Exception, match="Run `make clients`"):
        running.node("openai.mjs")
