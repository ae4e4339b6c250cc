"""The dispatch of requests: calls of the service in JSON or CBOR, and admin calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import orjson
import pybase64
from attrs import evolve, frozen

from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ApiError,
    StreamingAnswer,
    serialization,
)
from kinesis_publishers.testing.local_kinesis.faults import Fault
from kinesis_publishers.testing.local_kinesis.service import KinesisService


@frozen
class Dispatcher:
    """Answers requests."""

    _service: KinesisService
    _admin: Admin

    async def answer(
        self, method: str, path: str, target: str, body: bytes, content_type: str
    ) -> Answer | StreamingAnswer:
        """Answer one request in its own content type; ``target`` is its X-Amz-Target header."""
        now_ms = self._service.state.now_ms
        if path.startswith("/_admin/"):
            return evolve(self._admin.handle(method, path, body), now_ms=now_ms())
        handle = self._answer_cbor if content_type == CBOR else self._service.handle
        return evolve(await handle(target, body), now_ms=now_ms())

    async def _answer_cbor(self, target: str, body: bytes) -> Answer | StreamingAnswer:
        try:
            answer = await self._service.handle(target, json_of_cbor(body) if body else b"")
        except ValueError as error:
            answer = Answer.refusing(serialization(f"The request cannot be read: {error}"))
        if isinstance(answer, StreamingAnswer):
            return answer
        return evolve(answer, body=cbor_of_json(answer.body), content_type=CBOR)


CBOR = "application/x-amz-cbor-1.1"
_INSTANT = 1


def json_of_cbor(body: bytes) -> bytes:
    """Return a request as JSON; ValueError if it is not CBOR, or nothing that JSON could say."""
    try:
        fields = cbor2.loads(body, semantic_decoders={_INSTANT: lambda value, _: value / 1000})
        return orjson.dumps(fields, default=lambda blob: pybase64.b64encode(blob).decode())
    except (cbor2.CBORDecodeError, TypeError) as error:
        raise ValueError(f"not CBOR: {error}") from error


def cbor_of_json(body: bytes) -> bytes:
    """Return an answer as CBOR; one that is empty, or not what the service says, stays as it is."""
    try:
        return cbor2.dumps(_member("", orjson.loads(body)))
    except (TypeError, ValueError):
        return body


def _member(name: str, value: Any) -> object:
    if isinstance(value, dict):
        return {key: _member(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_member(name, item) for item in value]
    if name == "Data":
        return pybase64.b64decode(value)
    if name.endswith(("Timestamp", "At")):
        return cbor2.CBORTag(_INSTANT, round(value * 1000))
    return value


class Admin:
    """Answers ``/_admin/...``."""

    def __init__(self, service: KinesisService) -> None:
        self._service = service
        self._routes: dict[tuple[str, str], Callable[[object], object]] = {
            ("POST", "/_admin/faults"): self._add_faults,
            ("POST", "/_admin/trim"): self._trim,
            ("POST", "/_admin/reset"): self._reset,
            ("GET", "/_admin/state"): self._describe,
        }

    def handle(self, method: str, path: str, body: bytes) -> Answer:
        route = self._routes.get((method, path))
        if route is None:
            return _json(404, {"error": f"no {method} {path}"})
        try:
            with self._service.lock:
                return _json(200, route(orjson.loads(body) if body else {}))
        except (ApiError, TypeError, ValueError) as error:
            return _json(400, {"error": str(error)})

    def _add_faults(self, value: object) -> object:
        items = value if isinstance(value, list) else [value]
        faults = [Fault(**_keywords(item)) for item in items]
        for fault in faults:
            self._service.state.faults.add(fault)
        return {"added": len(faults)}

    def _trim(self, value: object) -> object:
        return {"trimmed": self._service.state.trim(**_keywords(value))}

    def _reset(self, value: object) -> object:
        """Forget everything, or everything but the streams with ``{"keep_streams": true}``."""
        if _keywords(value).get("keep_streams"):
            self._service.state.faults.clear()
            self._service.state.rates.clear()
            self._service.calls.clear()
        else:
            self._service.clear()
        return {}

    def _describe(self, _: object) -> object:
        state = self._service.state
        streams = {
            stream.name: {
                "status": stream.status(state.now_ms()),
                "shards": {
                    shard.shard_id: {"open": shard.is_open, "records": shard.record_count}
                    for shard in stream.retained_shards(state.now_ms())
                },
                "consumers": {
                    consumer.name: {
                        "arn": consumer.arn,
                        "status": consumer.status(state.now_ms()),
                        "subscriptions": [
                            open_one.describe(state.clock.monotonic())
                            for open_one in state.subscriptions.find(
                                stream.name, consumer=consumer.name
                            )
                        ],
                    }
                    for consumer in stream.present_consumers(state.now_ms())
                },
            }
            for stream in state.all_streams()
        }
        return {
            "streams": streams,
            "calls": self._service.calls.describe(),
            "faults": state.faults.describe(),
        }


def _keywords(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return value


def _json(status: int, value: object) -> Answer:
    return Answer(status, orjson.dumps(value), content_type="application/json")
