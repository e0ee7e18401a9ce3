"""What `/metrics` tells, in Prometheus' text format: tokens, times, the queue, subscribers, requests, the process.

Written in the hub only: prometheus_client's locks are gevent's in this process, and a native thread may not take
them. What has a home elsewhere (the queue, the ring, the SAE's clock) is read there when it is asked for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import gevent
from flask import Flask, Response, request
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics import disable_created_metrics
from prometheus_client.registry import Collector

from neuroscope.manifest import package_version
from neuroscope.server.note import RequestNote, note_route

if TYPE_CHECKING:
    from neuroscope.server.service import Service
    from neuroscope.steps import Step

FINISH_REASONS = ("stop", "length", "cancelled", "shutdown", "error")
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"})
"""Any other word is the client's invention, and would make a series of its own."""
NO_ROUTE = "none"
REFUSALS = (429, 503)
LAG_SECONDS = 0.25
LAG_KEPT = 240
"""Measurements behind the largest lag: a minute of them."""
_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_FIRST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Metrics:
    """One per process, with a registry of its own."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` beside each would double the page
        self.registry = registry = CollectorRegistry()
        registry.register(_Now(service))
        ProcessCollector(registry=registry)
        self.tokens = Counter(
            "neuroscope_generated_tokens", "Tokens generated, ends of turns not counted.", registry=registry
        )
        self.prompt_tokens = Counter(
            "neuroscope_prompt_tokens", "Prompt tokens of answers that got a first token.", registry=registry
        )
        self.encoded_tokens = Counter(
            "neuroscope_encoded_tokens", "Tokens of given texts, read without generating.", registry=registry
        )
        self.generations = Counter(
            "neuroscope_generations", "Answers that ended, by how.", ["finish_reason"], registry=registry
        )
        self.first_token = Histogram(
            "neuroscope_first_token_seconds",
            "From joining the model's queue to the first token.",
            buckets=_FIRST_BUCKETS,
            registry=registry,
        )
        self.token_seconds = Histogram(
            "neuroscope_token_seconds",
            "Between two tokens of one answer.",
            buckets=_TOKEN_BUCKETS,
            registry=registry,
        )
        self.refused = Counter(
            "neuroscope_refused",
            "Requests refused for now (429, 503), by error code.",
            ["code"],
            registry=registry,
        )
        self.requests = Counter(
            "neuroscope_requests",
            "Requests answered, by the route that matched.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "neuroscope_request_seconds",
            "From a request's headers to the end of its answer; of a stream, how long it was read.",
            ["route", "method"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self.open_requests = 0
        self.lag = Histogram(
            "neuroscope_loop_lag_seconds",
            "How late the event loop is: what every other client waits for.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self.lags: deque[float] = deque([0.0], maxlen=LAG_KEPT)
        for reason in FINISH_REASONS:
            self.generations.labels(reason)

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def answered(self, note: RequestNote, seconds: float) -> None:
        """A request is over."""
        route = note.route or NO_ROUTE
        method = note.method if note.method in METHODS else "other"
        self.requests.labels(route, method, str(note.status)).inc()
        self.request_seconds.labels(route, method).observe(seconds)
        if note.status in REFUSALS and note.code is not None:
            self.refused.labels(note.code).inc()

    def watch_lag(self, every_time: Callable[[], None]) -> NoReturn:
        """Measure the loop's lag for ever, and call `every_time`. Run in a greenlet."""
        while True:
            asleep = time.perf_counter()
            gevent.sleep(LAG_SECONDS)
            late = max(0.0, time.perf_counter() - asleep - LAG_SECONDS)
            self.lag.observe(late)
            self.lags.append(late)
            every_time()


class AnswerMeter:
    """Measures one answer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last = time.perf_counter()
        self._has_begun = False
        self._has_ended = False

    def step(self, step: Step) -> None:
        now, metrics = time.perf_counter(), self._metrics
        if self._has_begun:
            metrics.token_seconds.observe(now - self._last)
        else:
            self._has_begun = True
            metrics.first_token.observe(now - self._last)
            metrics.prompt_tokens.inc(step.prompt_tokens)
        self._last = now
        if not step.is_end:
            metrics.tokens.inc()

    def end(self, finish_reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._metrics.generations.labels(finish_reason).inc()


class _Now(Collector):
    """What is read where it is kept, at the moment it is asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._version = package_version()

    def collect(self) -> Iterator[Metric]:
        service = self._service
        inference, stream = service.inference, service.stream
        loaded = service.loaded if service.is_ready else None
        yield InfoMetricFamily(
            "neuroscope_build",
            "What is served; empty while it loads.",
            {
                "version": self._version,
                "model": loaded.model if loaded else "",
                "sae": loaded.sae_id if loaded else "",
            },
        )
        yield _gauge("ready", "1 when requests for the model are taken.", loaded is not None)
        yield _gauge(
            "degraded", "How many things /readyz says are missing.", len(loaded.degraded) if loaded else 0
        )
        yield _gauge("queue_running", "1 while the model works.", inference.busy)
        yield _gauge("queue_waiting", "Requests that wait for the model.", inference.waiting)
        yield _gauge("subscribers", "Readers of the features stream.", len(service.subscribers))
        yield _counter("events_published", "Events written to the features stream.", stream.newest)
        yield _counter(
            "events_missed", "Events that were gone before a slow subscriber read them.", stream.missed
        )
        yield _gauge(
            "requests_open", "Requests being answered, streams among them.", service.metrics.open_requests
        )
        yield _gauge("loop_lag_max_seconds", "The largest lag of the last minute.", max(service.metrics.lags))
        if loaded is not None:
            clock = loaded.engine.sae_clock
            yield SummaryMetricFamily(
                "neuroscope_sae_seconds",
                "Encoding residuals; on a GPU this includes waiting for the forward pass before.",
                count_value=clock.count,
                sum_value=clock.seconds,
            )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"neuroscope_{name}", meaning, float(value))


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(f"neuroscope_{name}", meaning, float(value))


def add_metrics(app: Flask, metrics: Metrics) -> None:
    """Add `/metrics` to `app`, and have each request note which of its routes it took."""

    @app.before_request
    def note_rule() -> None:
        if request.url_rule is not None:
            note_route(request.url_rule.rule)

    @app.get("/metrics")
    def metrics_page() -> Response:
        return Response(metrics.page(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
