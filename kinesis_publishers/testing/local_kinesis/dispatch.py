"""What a front does with a request, whatever the protocol: an admin call or one of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kinesis_publishers.testing.local_kinesis.answers import Answer
from kinesis_publishers.testing.local_kinesis.cbor import CBOR, cbor_of_json

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.admin import Admin
    from kinesis_publishers.testing.local_kinesis.answers import StreamingAnswer
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
        answer = await self._service.handle(target, body, content_type)
        if content_type == CBOR and isinstance(answer, Answer):
            answer = evolve(answer, body=cbor_of_json(answer.body), content_type=CBOR)
        return evolve(answer, now_ms=now_ms())
