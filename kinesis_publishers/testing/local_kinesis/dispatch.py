"""What a front does with a request, whatever the protocol: an admin call or one of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.admin import Admin
    from kinesis_publishers.testing.local_kinesis.answers import Answer, StreamingAnswer
    from kinesis_publishers.testing.local_kinesis.service import KinesisService

__all__ = ["Dispatcher"]


@frozen
class Dispatcher:
    """Answers requests."""

    _service: KinesisService
    _admin: Admin

    async def answer(
        self, method: str, path: str, target: str, body: bytes
    ) -> Answer | StreamingAnswer:
        """Answer one request; ``target`` is its X-Amz-Target header."""
        answer: Answer | StreamingAnswer
        if path.startswith("/_admin/"):
            answer = self._admin.handle(method, path, body)
        else:
            answer = await self._service.handle(target, body)
        return evolve(answer, now_ms=self._service.state.now_ms())
