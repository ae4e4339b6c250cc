"""``LocalKinesis``: the service behind a port of the loopback interface, and its helpers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack

from kinesis_publishers.abc import ControlPlane
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.event_loop import EventLoopThread
from kinesis_publishers.testing.local_kinesis.limits import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.operations.shards import scale_shards
from kinesis_publishers.testing.local_kinesis.service import Call, KinesisService, busiest_second

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.faults import Fault
    from kinesis_publishers.testing.local_kinesis.http_front import HttpVersion
    from kinesis_publishers.testing.local_kinesis.in_process import InProcessDataPlane
    from kinesis_publishers.testing.local_kinesis.shard import StoredRecord
    from kinesis_publishers.testing.local_kinesis.stream import Consumer

_T = TypeVar("_T")
_LOOPBACK = "127.0.0.1"
_CREDENTIAL = "local"


class _Listening(TypedDict, total=False):
    """How a server listens; :class:`LocalKinesis` says what each means."""

    host: str
    port: int
    tls: bool
    ca_file: str | None
    http_versions: Sequence[HttpVersion]
    max_streams: int


class _OfState(Generic[_T]):
    """An attribute of the state of the service, which changes between two calls."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, server: LocalKinesis, _: type) -> _T:
        value: _T = getattr(server._service.state, self._name)
        return value

    def __set__(self, server: LocalKinesis, value: _T) -> None:
        with server._service.locked() as state:
            setattr(state, self._name, value)


class LocalKinesis:
    """A Kinesis Data Streams service on the loopback interface.

    Two ways to run it: ``async with LocalKinesis() as server`` serves in the running loop;
    ``with LocalKinesis.in_thread() as server`` serves in a thread with a loop of its own, for
    tests that are not asynchronous. The helper methods may be called from any thread.

    Args:
        limits: what it refuses; AWS's limits on reading unless given.
        clock: the time it lives in.
        behaviour: how long changes take and what traps it sets.
        host: the address to listen on.
        port: 0 takes any free port.
        tls: serve https, and nothing else, with a certificate that is made for this server.
        ca_file: where to leave the certificate that clients must trust; see :attr:`ca_bundle`.
        http_versions: the protocols that are offered over https.
        max_streams: how many calls one HTTP/2 connection may have open at once.

    Attributes:
        ca_bundle: the path of the CA certificate that clients of an https server must trust. It is
            there while the server runs; afterwards only if it was asked for as ``ca_file``.
    """

    limits = _OfState[Limits]()
    behaviour = _OfState[Behaviour]()

    def __init__(
        self,
        limits: Limits | None = None,
        clock: Clock | None = None,
        behaviour: Behaviour | None = None,
        *,
        host: str = _LOOPBACK,
        port: int = 0,
        tls: bool = False,
        ca_file: str | None = None,
        http_versions: Sequence[HttpVersion] = ("2", "1.1"),
        max_streams: int = 128,
    ) -> None:
        self.clock = clock or SystemClock()
        self._service = KinesisService(limits or Limits.aws(), self.clock, behaviour or Behaviour())
        self._host = host
        self._port = port
        self._tls: TlsOptions | None = None
        if tls:
            with _naming_the_extra():
                from kinesis_publishers.testing.local_kinesis.http_front import TlsOptions

                self._tls = TlsOptions(host, http_versions)
        self._max_streams = max_streams
        self._ca_file = ca_file
        self.ca_bundle: str | None = None
        self._resources = AsyncExitStack()
        self._thread: EventLoopThread | None = None

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        limits: Limits | None = None,
        clock: Clock | None = None,
        behaviour: Behaviour | None = None,
        **listening: Unpack[_Listening],
    ) -> Iterator[Self]:
        """Serve in a thread of its own while the context lasts."""
        server = cls(limits, clock, behaviour, **listening)
        # Its thread is a daemon: a test run that is interrupted must not hang on its server.
        with closing(EventLoopThread(name="local-kinesis")) as thread:
            thread.start(server.__aenter__()).result()
            server._thread = thread
            try:
                yield server
            finally:
                server._thread = None
                thread.start(server.__aexit__()).result()

    async def __aenter__(self) -> Self:
        # Only a server that listens needs what the extra "local" installs.
        with _naming_the_extra():
            from kinesis_publishers.testing.local_kinesis.dispatch import Admin, Dispatcher
            from kinesis_publishers.testing.local_kinesis.http_front import HttpFront

        async with AsyncExitStack() as opened:
            if self._tls is not None:
                written = self._tls.ca_bundle(self._ca_file)
                self.ca_bundle = opened.enter_context(written)
            dispatcher = Dispatcher(self._service, Admin(self._service))
            front = HttpFront(dispatcher, self._tls, max_streams=self._max_streams)
            self._port = await front.open(self._host, self._port)
            opened.push_async_callback(front.close)
            self._resources = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    @property
    def endpoint_url(self) -> str:
        """The URL to give to a client."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self._port}"

    def data_plane(self) -> InProcessDataPlane:
        """Return a data plane, which writes too, that calls this service without HTTP.

        It needs no open server, and waits on :attr:`clock` alone: with a ``ManualClock``, nothing
        waits for real time.
        """
        from kinesis_publishers.testing.local_kinesis.in_process import InProcessDataPlane

        return InProcessDataPlane(self._service)

    def control_plane(self) -> ControlPlane:
        """Return a control plane that calls this service in the process, without HTTP."""
        from kinesis_publishers.testing.local_kinesis.in_process import InProcessControlPlane

        return InProcessControlPlane(self._service)

    def client(self) -> Any:
        """Return a boto3 client of this server that does not retry; the caller closes it."""
        import boto3  # boto3 takes 100 ms to import, which a server alone has no use for.
        from botocore.config import Config

        return boto3.client(
            "kinesis",
            endpoint_url=self.endpoint_url,
            region_name=self.behaviour.region,
            verify=self.ca_bundle,
            aws_access_key_id=_CREDENTIAL,
            aws_secret_access_key=_CREDENTIAL,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=50),
        )

    def properties(self, stream: str) -> dict[str, str]:
        """Return the properties with which the framework reads ``stream`` from this server."""
        trust = {} if self.ca_bundle is None else {"aws.cabundle": self.ca_bundle}
        is_limited = self.limits.get_records_calls_per_second is not None
        limits = {} if is_limited else {"kinesis.shard.limits": "off"}
        return {
            "aws.region": self.behaviour.region,
            "aws.endpoint": self.endpoint_url,
            **trust,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": _CREDENTIAL,
            "aws.credentials.provider.basic.secretkey": _CREDENTIAL,
            "kinesis.streams": stream,
            **limits,
        }

    def create_stream(self, stream: str, shard_count: int = 1) -> None:
        """Create a provisioned stream in this process."""
        with self._service.locked() as state:
            state.create(stream, "PROVISIONED", shard_count)

    def reshard(self, stream: str, shard_count: int) -> None:
        """Scale a stream of either mode to ``shard_count`` equal shards, at once, by any factor."""
        with self._service.locked() as state:
            scale_shards(state.find_active(stream), shard_count, state.now_ms())

    def distribute(self, stream: str, *, is_auto: bool = True) -> None:
        """Let a stream, on demand from now on, choose the shards of records itself (AUTO), or not.

        It is at once what UpdateStreamRecordDistributionStrategy does.
        """
        with self._service.locked() as state:
            found = state.find_active(stream)
            found.mode, found.is_auto_distributed = "ON_DEMAND", is_auto

    def put_many(
        self, stream: str, records: Iterable[tuple[str | None, bytes]]
    ) -> list[tuple[str, str]]:
        """Store (partition key, data) pairs, without limits, faults or HTTP; a key may be missing.

        The shard id and the sequence number of each record are returned, in the order given.
        """
        with self._service.locked() as state:
            return state.write(stream, records)

    def records(self, stream: str) -> dict[str, list[StoredRecord]]:
        """Return what is stored in each shard, oldest first."""
        with self._service.locked() as state:
            return state.read(stream)

    def trim(
        self,
        stream: str,
        *,
        shard_id: str | None = None,
        through: str | None = None,
        drop_closed_shards: bool = True,
    ) -> int:
        """Remove records as if they had left the retention; return how many.

        Args:
            stream: its name.
            shard_id: only this shard; all of them unless given.
            through: the sequence number of the last record to remove; all records unless given.
            drop_closed_shards: a closed shard that has become empty leaves ListShards, too.
        """
        with self._service.locked() as state:
            return state.trim(
                stream, shard_id=shard_id, through=through, drop_closed_shards=drop_closed_shards
            )

    def add_fault(self, fault: Fault) -> None:
        """Plan a fault; it comes after those planned before."""
        with self._service.locked() as state:
            state.faults.add(fault)

    def clear_faults(self) -> None:
        with self._service.locked() as state:
            state.faults.clear()

    def calls(
        self, operation: str | None = None, stream: str | None = None, shard_id: str | None = None
    ) -> list[Call]:
        """Return the calls that came over the wire and match, oldest first."""
        with self._service.lock:
            return self._service.calls.find(operation, stream, shard_id)

    def busiest_second(
        self, operation: str, stream: str | None = None, shard_id: str | None = None
    ) -> int:
        """Return the largest number of such calls within any one second."""
        return busiest_second(self.calls(operation, stream, shard_id))

    def reset(self) -> None:
        """Forget streams, faults, calls and rates."""
        self._service.clear()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the server's own loop (``in_thread`` only) and wait for its result.

        A :class:`ManualClock` whose sleepers are the server's is advanced by this.
        """
        if self._thread is None:
            coroutine.close()
            raise RuntimeError("run() needs a server that was started by in_thread()")
        return self._thread.start(coroutine).result()

    def register_consumer(self, stream: str, name: str) -> str:
        """Register a consumer without limits or HTTP and return its ARN."""
        with self._service.locked() as state:
            return state.register(state.find_active(stream), name, {}).arn

    def deregister_consumer(self, stream: str, name: str) -> None:
        """Deregister a consumer as another process would; its subscriptions end."""
        with self._service.locked() as state:
            consumer = state.find(stream).consumer(name, state.now_ms())
            if consumer is None:
                raise ValueError(f"stream {stream} has no consumer {name}")
            state.deregister(consumer)

    def _consumers(self, read: Callable[[Consumer, int], str], stream: str) -> dict[str, str]:
        with self._service.locked() as state:
            now_ms = state.now_ms()
            present = state.find(stream).present_consumers(now_ms)
            return {one.name: read(one, now_ms) for one in present}

    consumers = partialmethod(_consumers, lambda one, now_ms: one.status(now_ms))
    """Return the status of every consumer of a stream by its name."""

    consumer_arns = partialmethod(_consumers, lambda one, _: one.arn)
    """Return the ARN of every consumer of a stream by its name."""

    def open_subscriptions(
        self, stream: str | None = None, shard_id: str | None = None, consumer: str | None = None
    ) -> int:
        """Return how many subscriptions are open; one that has been taken over is not."""
        with self._service.locked() as state:
            return len(state.subscriptions.find(stream, shard_id, consumer))


@contextmanager
def _naming_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        error.msg += ", which LocalKinesis needs: pip install 'kinesis-publishers[local]'"
        raise


def run_server(
    host: str = _LOOPBACK,
    port: int = 0,
    limits: Limits | None = None,
    on_ready: Callable[[LocalKinesis], None] | None = None,
    *,
    tls: bool = False,
    ca_file: str | None = None,
) -> None:
    """Serve until the process is interrupted (Ctrl-C); ``on_ready`` is called once it listens."""

    async def serve() -> None:
        async with LocalKinesis(limits, host=host, port=port, tls=tls, ca_file=ca_file) as server:
            if on_ready is not None:
                on_ready(server)
            await asyncio.Event().wait()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        # asyncio.run has cancelled serve(), which closed the server: an orderly end.
        return
