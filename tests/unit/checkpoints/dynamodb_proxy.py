"""A server in front of moto's DynamoDB that fails calls as a test says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["DynamoDbProxy"]

# An error code; "cut" carries the call out and drops the answer.
Fault: TypeAlias = str


class DynamoDbProxy:
    """Passes calls on; the next ones of an operation have the faults that stand there for it.

    Attributes:
        faults: what happens to the next calls, by operation.
        calls: the operations that were called, in order.
        most_at_once: how many calls were under way at the same time.
        page_items: how many items a page has at most.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._under_way = 0
        self.faults: dict[str, list[Fault]] = {}
        self.calls: list[str] = []
        self.most_at_once = 0
        self.page_items: int | None = None
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[DynamoDbProxy]:
        app = web.Application()
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with aiohttp.ClientSession() as self._session:
                yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            return await self._pass_on(request)
        finally:
            self._under_way -= 1

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        self.calls.append(operation)
        faults = self.faults.get(operation)
        fault = faults.pop(0) if faults else None
        if fault not in (None, "cut"):
            error = {"__type": f"com.amazonaws.dynamodb#{fault}", "message": "as the test says"}
            return web.json_response(error, status=400)
        kept = ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        body = await request.read()
        if operation in ("Query", "Scan") and self.page_items:
            body = orjson.dumps({**orjson.loads(body), "Limit": self.page_items})
        async with self._session.post(self._target, data=body, headers=headers) as answer:
            content = await answer.read()
        if fault == "cut":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(
            status=answer.status, body=content, content_type="application/x-amz-json-1.0"
        )
