"""What is no setting, and how the person who wrote it is told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscope import settings
from neuroscope.errors import ConfigError
from neuroscope.settings import schema as schemas

ROOT = Path(__file__).parents[2]


def numbers(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The settings that take numbers."""
    for name, child in schema["properties"].items():
        if "properties" in child:
            yield from numbers(child, f"{prefix}{name}.")
        elif {"number", "integer"} & set(
            child["type"] if isinstance(child["type"], list) else [child["type"]]
        ):
            yield f"{prefix}{name}"


NUMBERS = list(numbers(schemas.read_schema(ROOT / "workflow/schemas/config.schema.yaml")))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    monkeypatch.chdir(ROOT)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of config and schemas, in a path with a space, as the working directory."""
    root = tmp_path / "my checkout"
    shutil.copytree(ROOT / "config", root / "config")
    shutil.copytree(ROOT / "workflow/schemas", root / "workflow/schemas")
    monkeypatch.chdir(root)
    return root


def write(path: Path, tree: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def test_an_unknown_key_is_refused_with_the_closest_one(checkout: Path) -> None:
    config = write(checkout / "config/config.yaml", {"serve": {"prot": 1}})
    with pytest.raises(
        ConfigError, match=r"config.yaml: serve.prot is not a setting. Did you mean serve.port\?"
    ):
        settings.load(config=config)
    with pytest.raises(ConfigError, match=r"xyzzy is not a setting. Known: pairing, model, layer"):
        settings.load(config=write(config, {"xyzzy": 1}))


def test_an_unknown_flag_is_refused_with_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"overrides: rankin.top_k .* Did you mean ranking.top_k\?"):
        settings.load(overrides={"rankin.top_k": 3})


def test_a_section_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="overrides: serve is not a setting"):
        settings.load(overrides={"serve": {"port": 1}})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("serve.port", "8080", "serve.port is '8080', must be integer, at least 1, at most 65535. TCP port"),
        ("serve.port", 70000, "serve.port is 70000, must be integer"),
        ("serve.port", True, "serve.port is True, must be integer"),
        ("ranking.filter", "best", "must be one of none, frequency, surprise, combined, frequency_surprise"),
        ("ranking.threshold", 1.5, "ranking.threshold is 1.5, must be number, at least 0, at most 1"),
        ("labels.labeler", "gpt", "labels.labeler is 'gpt'"),
        ("labels.priority", ["tokens", "mine"], "labels.priority.1 is 'mine', must be one of file, claude"),
        (
            "labels.labeler",
            "openai",
            "labels.labeler is openai, which needs labels.model and labels.base_url",
        ),
        ("labels.labeler", "file", "labels.labeler is file, which needs labels.file"),
        ("labels.prices.input", 1, "labels.prices.input is set alone"),
        ("labels.base_url", "https://me:secret@host/v1", "labels.base_url is"),
        ("results", "results", "results is 'results', must be string, matching"),
        ("device", "gpu", "device is 'gpu'"),
        ("sweep.outlier_norm", 1, "must be number, more than 1"),
        ("serve.heartbeat_s", "15", "serve.heartbeat_s is '15', must be number, more than 0, at most 3600"),
        ("serve.heartbeat_s", -1, "serve.heartbeat_s is -1, must be number, more than 0"),
        ("serve.port", 8080.0, "serve.port is 8080.0, must be integer"),
        ("training.held_out", 1, "less than 1"),
    ],
)
def test_a_wrong_value_is_refused_with_type_range_and_meaning(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        settings.load(overrides={key: value})


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_number_may_be_nan_or_infinite(checkout: Path, value: str) -> None:
    refused = {key: float(value) for key in NUMBERS}
    schema = schemas.read_schema(ROOT / "workflow/schemas/config.schema.yaml")
    config = write(checkout / "config/config.yaml", schemas.nest(refused, schema))
    assert f": {value.replace('nan', '.nan').replace('inf', '.inf')}\n" in config.read_text()
    for load in (settings.load, lambda: settings.load(config=write(config, {}), overrides=refused)):
        with pytest.raises(ConfigError) as error:
            load()
        said = re.findall(rf"(\S+) is {value}, must be (?:string or )?(?:number|integer)", str(error.value))
        assert sorted(said) == sorted(NUMBERS)


ALONE = (
    "must be string, as box.example or 192.168.1.7. A name or an address alone, without scheme, port or path."
)
ORIGIN = "must be string, as https://box.example or http://box.example:3000. Scheme and name, with the port"


@pytest.mark.parametrize("host", ["http://x", "x:80", "x/y", "", " ", "a b", "*", "*.x", "x\n", "[::1]:80"])
def test_an_allowed_host_is_a_name_alone(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"serve.allowed_hosts.1 is {host!r}, {ALONE}")):
        settings.load(overrides={"serve.allowed_hosts": ["box.example", host]})
    monkeypatch.setenv("NEUROSCOPE_ALLOWED_HOSTS", f"box.example, {host}")
    if host.strip() in ("", "x"):
        assert settings.more_allowed_hosts() == ("box.example", *host.split())
        return
    with pytest.raises(
        ConfigError, match=re.escape(f"NEUROSCOPE_ALLOWED_HOSTS: serve.allowed_hosts.1 is {host!r}, {ALONE}")
    ):
        settings.more_allowed_hosts()


def test_names_and_addresses_are_allowed_hosts() -> None:
    hosts = ["box", "Box.Example", "my_service", "10.0.0.1", "::1", "[::1]", "fe80::1"]
    assert settings.load(overrides={"serve.allowed_hosts": hosts}).serve.allowed_hosts == tuple(hosts)


@pytest.mark.parametrize(
    "origin",
    [
        "box.example",
        "http://box/",
        "http://box/x",
        "http://b?q",
        "http://u@b",
        "ftp://b",
        "null",
        "*",
        "http://b\n",
    ],
)
def test_an_allowed_origin_is_scheme_and_name(origin: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"serve.allowed_origins.0 is {origin!r}, {ORIGIN}")):
        settings.load(overrides={"serve.allowed_origins": [origin]})
    for right in ("http://box", "https://Box.Example:443", "http://[::1]:3000"):
        assert settings.load(overrides={"serve.allowed_origins": [right]}).serve.allowed_origins == (right,)


@pytest.mark.parametrize("host", ["http://x", "x:80", "[::1]", "", " ", "a/b"])
def test_the_host_is_an_address_alone(host: str) -> None:
    words = f"serve.host is {host!r}, must be string, as 127.0.0.1 or ::1. Address both ports bind to, without scheme"
    with pytest.raises(ConfigError, match=re.escape(words)):
        settings.load(overrides={"serve.host": host})
    for right in ("localhost", "0.0.0.0", "::", "fe80::1%eth0"):
        assert settings.load(overrides={"serve.host": right}).serve.host == right


TWICE = [
    ("serve:\n  port: 1\nresults: a\nserve:\n  port: 2\n", "line 4: serve is given in line 1 already"),
    ("serve:\n  port: 1\n  host: a\n  port: 2\n", "line 4: port is given in line 2 already"),
    ("serve: {port: 1, port: 1}\n", "line 1: port is given in line 1 already"),
]


@pytest.mark.parametrize(("text", "words"), TWICE)
def test_a_key_given_twice_is_refused_with_file_and_line(checkout: Path, text: str, words: str) -> None:
    (checkout / "config/config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"config.yaml, {words}. Remove one."):
        settings.load()
    (checkout / "config/config.yaml").write_text("{}")
    (checkout / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"mine.yaml, {words}"):
        settings.from_snakemake({}, files=["mine.yaml"])


def test_an_anchor_may_be_merged_and_changed(checkout: Path) -> None:
    path = checkout / "merged.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: *b, y: 4}\n")
    assert schemas.read_yaml(path)["c"] == {"x": 1, "y": 4}


def test_a_pairing_with_a_key_twice_is_refused(checkout: Path) -> None:
    text = (checkout / "config/pairings/smollm2-135m.yaml").read_text()
    (checkout / "config/pairings/mine.yaml").write_text(f"{text}\nlayer: 3\n")
    with pytest.raises(ConfigError, match=r"mine.yaml, line \d+: layer is given in line \d+ already"):
        settings.load("mine")


def test_labels_that_no_priority_would_show_are_refused() -> None:
    given = {"labels.labeler": "claude-haiku-4-5-20251001", "labels.priority": ["neuronpedia", "tokens"]}
    with pytest.raises(ConfigError, match=r"labels.priority lacks claude"):
        settings.load(overrides=given)


def test_every_wrong_value_is_reported_at_once(checkout: Path) -> None:
    tree = {"serve": {"port": 0}, "ranking": {"top_k": 0}}
    with pytest.raises(ConfigError) as refused:
        settings.load(config=write(checkout / "config/config.yaml", tree))
    assert {"serve.port", "ranking.top_k"} <= set(re.findall(r"[a-z_]+\.[a-z_]+", str(refused.value)))


def test_both_servers_on_one_port_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"serve.port and serve.features_port are both 8081"):
        settings.load(overrides={"serve.port": 8081})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "must hold keys and values, found a list"),
        ("a: [\n", "is not YAML"),
        ("serve: 3\n", "serve is 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(checkout: Path, text: str, words: str) -> None:
    (checkout / "config/config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"config.yaml.*{words}"):
        settings.load()


def test_a_configuration_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(ROOT / "config/nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"nowhere.yaml cannot be read: No such file"):
        settings.load()


def test_an_unknown_pairing_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigError,
        match=r"'smollm2'. Did you mean smollm2-135m\? Known: gemma-2-2b, gemma-2-2b-it, .*smollm2-135m;",
    ):
        settings.load("smollm2")


def test_a_pairing_file_with_an_unknown_or_missing_key_is_refused(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/smollm2-135m.yaml")
    write(checkout / "config/pairings/mine.yaml", {**tree, "lyer": 3})
    with pytest.raises(ConfigError, match=r"mine.yaml: lyer is not a setting. Did you mean layer\?"):
        settings.load("mine")
    del tree["layer"]
    write(checkout / "config/pairings/mine.yaml", tree)
    with pytest.raises(ConfigError, match=r"mine.yaml: the file: 'layer' is a required property"):
        settings.load("mine")


def test_a_pairings_defaults_are_checked_like_the_configuration(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/smollm2-135m.yaml")
    tree["defaults"]["sweep"]["batch"] = 0
    write(checkout / "config/pairings/mine.yaml", tree)
    with pytest.raises(ConfigError, match=r"mine.yaml, defaults: sweep.batch is 0"):
        settings.load("mine")
