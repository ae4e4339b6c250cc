"""A boto3 client in threads of its own, for calls that are answered at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

import boto3
from botocore.config import Config
from botocore.session import get_session

from kinesis_publishers.aws.credentials import build_session
from kinesis_publishers.aws.errors import mapped_errors
from kinesis_publishers.aws.stream_names import name_streams_if_asked
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import AwsConfig

__all__ = ["Boto3Client", "watch_clock"]

_T = TypeVar("_T")
# The first call shows that an endpoint is wrong: its caller is to hear of it soon.
_CONNECT_TIMEOUT_SECONDS = 3.0
_READ_TIMEOUT_SECONDS = 10.0
_THREADS = 4
_SENT_AT = "kinesis_publishers.sent_at"


class Boto3Client:
    """Calls Kinesis once per call, off the event loop, with errors of our tree.

    Use it as ``async with Boto3Client(config, name) as client``.

    Args:
        config: the connection.
        name: whose it is, for threads and messages: "control plane".
        clock: learns the service's time.
    """

    def __init__(self, config: AwsConfig, name: str, clock: Clock | None = None) -> None:
        self._clock = clock
        self._config = config
        self._name = name
        prefix = f"kinesis-{name.replace(' ', '-')}"
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix=prefix)
        self._client: Any = None

    async def __aenter__(self) -> Self:
        # Building a client reads files and parses the service model: not on the event loop.
        try:
            self._client = await self._in_thread("CreateClient", "Kinesis", self._create_client)
        except BaseException:
            # Cancelled, or without credentials: __aexit__ does not run then.
            self._executor.shutdown(wait=False, cancel_futures=True)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A call in flight is bounded by its read timeout; nobody waits for its answer any more.
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()
            self._client = None

    async def call(self, operation: str, where: str, call: Callable[[Any], _T]) -> _T:
        """Return what ``call`` returns for the client.

        Args:
            operation: the API operation, for messages.
            where: what is asked, for messages: a stream or a consumer.
            call: makes the call, and takes what is wanted out of the answer.

        Raises:
            ServiceError: AWS refuses, or cannot be reached.
            ClosedError: the client is closed.
        """
        client = self._client
        if client is None:
            raise ClosedError(f"{operation} of {where}: the {self._name} is closed")
        return await self._in_thread(operation, where, lambda: call(client))

    async def _in_thread(self, operation: str, where: str, call: Callable[[], _T]) -> _T:
        def attempt() -> _T:
            with mapped_errors(operation, where, client=self._client):
                return call()

        return await asyncio.get_running_loop().run_in_executor(self._executor, attempt)

    def _create_client(self) -> Any:
        session = get_session()
        build_session(session, self._config)
        client = boto3.Session(botocore_session=session, region_name=self._config.region).client(
            "kinesis",
            endpoint_url=self._config.endpoint_url,
            verify=self._config.ca_bundle,
            config=Config(
                connect_timeout=_CONNECT_TIMEOUT_SECONDS,
                read_timeout=_READ_TIMEOUT_SECONDS,
                max_pool_connections=_THREADS,
                # The one layer that retries is kinesis_publishers.retry.
                retries={"total_max_attempts": 1, "mode": "standard"},
                user_agent_extra="kinesis-publishers",
            ),
        )
        name_streams_if_asked(client.meta.events)
        watch_clock(client, self._clock)
        return client


def watch_clock(client: Any, clock: Clock | None) -> None:
    """Let ``clock`` learn from each answer to ``client`` what time the service has."""
    if not isinstance(clock, ServiceClock):
        return

    def note_sending(context: dict[str, Any], **_: Any) -> None:
        context[_SENT_AT] = clock.machine.now()

    def note_answer(http_response: Any, context: dict[str, Any], **_: Any) -> None:
        clock.observe(http_response.headers.get("Date"), sent_at=context[_SENT_AT])

    client.meta.events.register("before-call.kinesis", note_sending)
    client.meta.events.register("after-call.kinesis", note_answer)
