"""The admin calls over HTTP: faults, trimming, resetting and a look at the state, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from kinesis_publishers.testing.local_kinesis.answers import Answer
from kinesis_publishers.testing.local_kinesis.errors import ApiError
from kinesis_publishers.testing.local_kinesis.faults import Fault
from kinesis_publishers.testing.local_kinesis.trimming import trim_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis.service import KinesisService

__all__ = ["Admin"]


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
        return {"trimmed": trim_stream(self._service.state.account, **_keywords(value))}

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
                            open_one.describe(state.monotonic())
                            for open_one in state.subscriptions.find(
                                stream=stream.name, consumer=consumer.name
                            )
                        ],
                    }
                    for consumer in stream.consumers.present(state.now_ms())
                },
            }
            for stream in state.account.all_streams()
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
