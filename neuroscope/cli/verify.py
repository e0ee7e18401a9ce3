"""`neuroscope verify`: are the numbers of this model and this SAE right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_pairing
from neuroscope.cli.output import show, show_record
from neuroscope.cli.pipeline import run_target


@click.command()
@with_pairing
@click.option("--tokens", type=click.IntRange(100), help="Tokens of the corpus to measure on.")
@with_cores
@as_json
def verify(tokens: int | None, cores: int | None, as_json: bool, **flags: Any) -> None:
    """Test the numbers on real text. Status 1 when one is off.

    The encoder against float64, the hook against the next layer's input, cached decoding against one pass, BOS,
    mean L0 against the published one, and the variance left unexplained under every input norm. Where Neuronpedia's
    examples were imported (`labels import neuronpedia --examples`), our activations on them against theirs.
    """
    from neuroscope import settings
    from neuroscope.verification import FILE, read_verification

    chosen = overrides(flags, verify__tokens=tokens)
    run_target("verify", chosen, cores=cores)
    found, _ = read_verification(settings.load(overrides=chosen).results / FILE)
    if as_json:
        show_record({"verdict": found.verdict, "off": list(found.off), **asdict(found)}, as_json=True)
    else:
        checks = [
            {
                "check": check.name,
                "verdict": check.verdict,
                "measured": check.measured,
                "accepted": check.limit,
                "what": check.sentence,
            }
            for check in found.checks
        ]
        show(checks, as_json=False)
        click.echo()
        configured = next(
            (name for name, of_norm in found.input_norms.items() if of_norm == found.overall), None
        )
        norms = [
            {"input norm": name + (" (in use)" if name == configured else ""), "L0": of.l0, "FVU": of.fvu}
            for name, of in found.input_norms.items()
        ]
        show(norms, as_json=False)
        click.echo()
        strata = {**found.strata, "all": found.overall}
        rows = [
            {"text": name, "tokens": of.tokens, "L0": of.l0, "FVU": of.fvu} for name, of in strata.items()
        ]
        show(rows, as_json=False)
        if (effect := found.quantization) is not None:
            click.echo()
            ours = found.overall if found.parity is None else found.parity.fidelity
            model = {"model": effect.quantization, "L0": ours.l0, "FVU": ours.fvu}
            other = {"model": "unquantised", "L0": effect.unquantized.l0, "FVU": effect.unquantized.fvu}
            show([model | {"top-10 overlap": effect.overlap}, other | {"top-10 overlap": 1.0}], as_json=False)
        if (parity := found.parity) is not None:
            click.echo()
            row = {"llama.cpp against torch, both on": parity.numbers, "mean cosine": parity.cosine}
            show([row | {"least": parity.least_cosine, "top-10 overlap": parity.overlap}], as_json=False)
    for warning in found.warnings:
        click.echo(warning, err=True)
    if found.off:
        click.echo(f"Off: {', '.join(found.off)}.", err=True)
        raise click.exceptions.Exit(1)
