"""The chat port: completions and models, as OpenAI's clients expect them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from flask import Flask, Response, request

from neuroscope.errors import PromptError, shown
from neuroscope.server import wire
from neuroscope.server.body import read_json_object
from neuroscope.server.chat_request import CompletionRequest, read_chat_request, read_text_request
from neuroscope.server.completion import Completion
from neuroscope.server.connection import ClientWatch
from neuroscope.server.document import add_document
from neuroscope.server.echo import Echo, NoAnswer, echo_of
from neuroscope.server.fields import Fields
from neuroscope.server.full import RefuseWhenFull
from neuroscope.server.generation import Generation
from neuroscope.server.loaded import Loaded
from neuroscope.server.problems import Problem, answer_problems, from_prompt_error
from neuroscope.server.routing import Application
from neuroscope.server.service import Service
from neuroscope.server.shapes import ChatShape, Shape, TextShape
from neuroscope.server.status import add_status, json_response


def create_chat_app(service: Service) -> Flask:
    """The WSGI application of the chat port."""
    app = Application("neuroscope.chat")
    answer_problems(app, lambda: service.loaded.pairing)
    add_status(app, service)
    add_document(app, "chat")

    @app.post("/v1/chat/completions")
    def chat_completions() -> Response:
        return _complete(service, read_chat_request, ChatShape())

    @app.post("/v1/completions")
    def completions() -> Response:
        return _complete(service, read_text_request, TextShape())

    @app.get("/v1/models")
    def models() -> Response:
        return json_response({"object": "list", "data": [_model_entry(service)]})

    @app.get("/v1/models/<path:model>")
    def model(model: str) -> Response:
        _check_model(service.loaded, model)
        return json_response(_model_entry(service))

    @app.route("/v1/responses", methods=["GET", "POST"])
    def responses() -> Response:
        raise Problem(404, "The Responses API is not served here. Use POST /v1/chat/completions.")

    paths = ("/v1/chat/completions", "/v1/completions")
    app.wsgi_app = RefuseWhenFull(app.wsgi_app, paths, lambda: service.is_ready and service.inference.is_full)  # type: ignore[method-assign]
    return app


def _complete(service: Service, read: Callable[[Fields], CompletionRequest], shape: Shape) -> Response:
    asked = read(read_json_object())
    loaded = service.loaded
    if asked.model is not None:
        _check_model(loaded, asked.model)
    generation, echo = _begin(service, asked, shape)
    completion = Completion(
        generation, shape, int(time.time()), with_logprobs=asked.sampling.logprobs, echo=echo
    )

    def cancel() -> None:
        if isinstance(generation, Generation):
            service.inference.cancel(generation)  # of no effect when the answer is complete

    watch = ClientWatch(request.environ, cancel)

    def left() -> None:
        watch.stop()
        cancel()

    if not asked.stream:
        try:
            return json_response(completion.whole())
        finally:
            left()
    chunks = completion.chunks(service.serve.heartbeat_s, include_usage=asked.include_usage)
    response = Response(watch.timed(chunks), mimetype="text/event-stream", headers=wire.STREAM_HEADERS)
    response.call_on_close(left)
    return response


def _begin(
    service: Service, asked: CompletionRequest, shape: Shape
) -> tuple[Generation | NoAnswer, Echo | None]:
    service.log_prompt(asked.asked)
    prepare = partial(service.loaded.engine.prepare, asked.asked)
    try:
        prompt, release = service.admit(prepare, partial(ClientWatch, request.environ))
        try:
            echo = echo_of(service, asked, prompt) if asked.echo else None
            if asked.sampling.max_tokens == 0:
                release()
                return NoAnswer(shape.prefix, service.loaded.model, prompt), echo
            sampling = asked.sampling_within(service.loaded.context_length - len(prompt.ids))
        except BaseException:
            release()
            raise
        generation = service.begin(
            shape.prefix, prompt, sampling, release, prompt_features=asked.prompt_features
        )
        return generation, echo
    except PromptError as error:
        raise from_prompt_error(error, asked.prompt_field, asked.limit_field) from error


def _check_model(loaded: Loaded, model: str) -> None:
    if not loaded.serves(model):
        raise Problem(
            404,
            f"The model {shown(model)} is not served here; {loaded.model!r} is.",
            param="model",
            code="model_not_found",
        )


def _model_entry(service: Service) -> dict[str, object]:
    return {
        "id": service.loaded.model,
        "object": "model",
        "created": service.started,
        "owned_by": "neuroscope",
        "context_length": service.loaded.context_length,
    }
