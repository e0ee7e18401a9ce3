"""What goes wrong inside a route, as the client reads it."""

from __future__ import annotations

from flask import Flask

from neuroscope.errors import ArtefactError, ModelError, made_anew
from neuroscope.server.problems import answer_problems


def test_results_that_cannot_be_read_are_answered_with_a_command_for_the_pairing_served() -> None:
    app = Flask("test")
    answer_problems(app, lambda: "smollm2-135m")

    @app.get("/broken")
    def broken() -> str:
        raise ArtefactError(f"results.duckdb was cut. {made_anew()}")

    answer = app.test_client().get("/broken")
    assert answer.status_code == 503
    error = answer.get_json()["error"]
    assert error["code"] == "results_unreadable"
    assert "`NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 4 labels`" in error["message"]


def test_what_a_model_cannot_do_is_answered_in_its_words() -> None:
    app = Flask("test")
    answer_problems(app, lambda: "smollm2-135m")

    @app.get("/broken")
    def broken() -> str:
        raise ModelError("The residual stream is not finite.")

    answer = app.test_client().get("/broken")
    assert (answer.status_code, answer.get_json()["error"]["message"]) == (
        500,
        "The residual stream is not finite.",
    )
