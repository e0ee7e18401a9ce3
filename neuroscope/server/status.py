"""/healthz, /readyz and /metrics, on both ports: whether the process lives, and what it has loaded and lacks."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response

from neuroscope.server import wire
from neuroscope.server.loaded import Loaded
from neuroscope.server.metrics import add_metrics
from neuroscope.server.problems import Problem
from neuroscope.server.service import Service


def add_status(app: Flask, service: Service) -> None:
    """Add the three routes to `app`."""
    add_metrics(app, service.metrics)

    @app.get("/healthz")
    def healthz() -> Response:
        return json_response({"status": "ok"})

    @app.get("/readyz")
    def readyz() -> Response:
        try:
            loaded = service.loaded
        except Problem as problem:
            status = "stopping" if service.stopping else "loading"
            return _not_ready(problem, status=status, stage=service.stage)
        if (sickness := service.sickness) is not None:
            return _not_ready(sickness.problem(), **sickness.words(), stage=service.stage)
        return json_response(readiness(loaded, service))


def readiness(loaded: Loaded, service: Service) -> dict[str, Any]:
    """What is loaded, in the words of /readyz. `degraded` is empty when nothing is missing."""
    return {
        "status": "degraded" if loaded.degraded else "ready",
        "degraded": list(loaded.degraded),
        "model": loaded.model,
        "device": loaded.device,
        "dtype": loaded.dtype,
        "decoding": loaded.decoding,
        "context_length": loaded.context_length,
        "sae": {"id": loaded.sae_id, "layer": loaded.layer, "width": loaded.width},
        "ranking": {
            "filter": service.ranking.filter if loaded.stats is not None else "none",
            "threshold": service.ranking.threshold,
            "top_k": service.ranking.top_k,
        },
        "stats": None
        if loaded.stats is None
        else {"source": loaded.stats.source, "tokens": loaded.stats.n_tokens},
        "labels": {"count": sum(loaded.label_sources.values()), "sources": loaded.label_sources},
        "verification": None
        if loaded.verification is None
        else {"verdict": loaded.verification.verdict, "off": list(loaded.verification.off)},
        "queue": {"running": service.inference.busy, "waiting": service.inference.waiting},
        "subscribers": len(service.subscribers),
    }


def _not_ready(problem: Problem, **words: str | None) -> Response:
    return Response(wire.encode({**words, **problem.body()}), problem.status, problem.headers())


def json_response(value: Any, status: int = 200) -> Response:
    return Response(wire.encode(value), status, {"Content-Type": "application/json"})
