"""What a front does with a request, whatever the protocol: an admin call or one of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kinesis_publishers.testing.local_kinesis.answers import Answer, StreamingAnswer
from kinesis_publishers.testing.local_kinesis.cbor import CBOR, cbor_of_json, json_of_cbor
from kinesis_publishers.testing.local_kinesis.errors import serialization

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.admin import Admin
    from kinesis_publishers.testing.local_kinesis.service import KinesisService

__all__ = ["Dispatcher"]


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
