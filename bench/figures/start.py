"""From the start of the server's process to its first 200 of /readyz, with results of as many features as its SAE has.

Beside it, in turns: a process that imports transformers and loads the same model and tokenizer with it, from the same
folder in the same dtype, and ends. Everything is in the page cache.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from serving import ROOT, free_ports, launch, write_config

from bench import made_results
from bench.figure import Figure, Spread
from neuroscope import settings
from neuroscope.identity import fingerprint_of
from neuroscope.manifest import SourcesLock
from neuroscope.models.loading import load_tokenizer
from neuroscope.pairing_sae import load_pairing_sae

THREADS = {"OMP_NUM_THREADS": str(os.cpu_count())}
"""For both."""
LOOK_S = 0.02
PATIENCE_S = 300.0
PLAIN = """
import sys, torch, transformers
transformers.AutoTokenizer.from_pretrained(sys.argv[1])
transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
"""


def measure(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        port, features_port = free_ports()
        pairing = yaml.safe_load((ROOT / f"config/pairings/{made_results.PAIRING}.yaml").read_text())
        config = write_config(
            folder, pairing=pairing, device="cpu", serve={"port": port, "features_port": features_port}
        )
        model = put_results(config)
        ready_s(config, port), plain_s(model)  # into the page cache
        pairs = []
        for number in range(rounds):
            first = plain_s(model) if number % 2 else None
            ours = ready_s(config, port)
            pairs.append((ours, plain_s(model) if first is None else first))
    return [
        Figure(
            "start-to-ready",
            "start of the server to /readyz, whole process",
            "a process that imports transformers and calls from_pretrained",
            Spread.of([ours / plain for ours, plain in pairs]),
            "x",
            at_most=1.25,
            details={
                "server_s": round(median(ours for ours, _ in pairs), 2),
                "plain_s": round(median(plain for _, plain in pairs), 2),
            },
        )
    ]


def put_results(config: Path) -> Path:
    """Made-up results that fit the model and SAE of `config`, where its server looks; returns the model's folder."""
    settled = settings.load(config=config)
    lock = SourcesLock(settled.results / "sources.lock.json")
    model, file = lock.resolve(settled.pairing.model), lock.resolve(settled.pairing.sae.uri).path
    tokenizer = load_tokenizer(model.path)
    used = fingerprint_of(
        settled.pairing,
        model=model,
        tokenizer=tokenizer,
        sae=load_pairing_sae(settled.pairing, file, device="cpu"),
        sae_file=file,
    )
    made_results.write_inputs(settled.results, used)
    made_results.build(settled.results)
    return Path(tokenizer.name_or_path)


def ready_s(config: Path, port: int) -> float:
    log = config.parents[1] / "server.log"
    began = time.perf_counter()
    process = launch(config, "neuroscope.wsgi", log, env=THREADS)
    try:
        while (told := readiness(port)) is None:
            if process.poll() is not None or time.perf_counter() - began > PATIENCE_S:
                raise SystemExit(f"The server does not become ready:\n{log.read_text(errors='replace')}")
            time.sleep(LOOK_S)
        taken = time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
    if told["degraded"]:
        raise SystemExit(f"The server has not loaded everything: {told['degraded']}")
    return taken


def readiness(port: int) -> dict[str, Any] | None:
    """What /readyz says with 200; None before."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return dict(json.loads(answer.read())) if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def plain_s(model: Path) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-c", PLAIN, str(model)]
    subprocess.run(command, env={**os.environ, **THREADS}, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
