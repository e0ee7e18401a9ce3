"""One finished run of the whole pipeline, shared by the tests that only look at it."""

from __future__ import annotations

import pytest
from fakes.checkout import Checkout, make_checkout

SECRETS = {
    "HF_TOKEN": "hf_secretsecret",
    "ANTHROPIC_API_KEY": "sk-secretsecret",
    "NEUROSCOPE_API_KEY": "secretsecret",
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """`snakemake --cores 2 labels` has run in it, from nothing."""
    checkout = make_checkout(tmp_path_factory.mktemp("finished"))
    checkout.snakemake("labels", **SECRETS)
    return checkout
