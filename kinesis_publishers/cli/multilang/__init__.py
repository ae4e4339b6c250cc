"""The command ``multilang``: runs processors that were written for the KCL's MultiLangDaemon."""

from __future__ import annotations

import asyncio
import logging
import shutil

import click
from attrs import define, field

from kinesis_publishers.cli.multilang.checkpoints import ShardCheckpoints
from kinesis_publishers.cli.multilang.child import ProcessorError
from kinesis_publishers.cli.multilang.processor import ShardProcessor
from kinesis_publishers.cli.shared.commands import CleanCommand, read_file
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.cli.shared.kcl_properties import DaemonConfig, daemon_config
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config.properties import pairs_in
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.errors import InvalidOptionError, KinesisPublishersError
from kinesis_publishers.model import Shard, ShardKey
from kinesis_publishers.processing.signals import stopped_by_signals
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.tasks import TaskScope

_LOGGER = logging.getLogger(__name__)


@click.command(cls=CleanCommand)
@click.argument("config", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Check FILE, and start nothing.")
def multilang(config: str, check: bool) -> None:
    """Run the processors of a MultiLangDaemon's .properties FILE (KCL-Python, KCL-Node), without
    Java.

    Each shard gets a process of executableName, which speaks the daemon's protocol. The leases are
    in the lease table of the KCL: workers of the KCL may run at the same time. SIGTERM and Ctrl-C
    let processors checkpoint. Exits with 1 if a processor fails.

    \b
    Examples:
      kinesis-publishers multilang my.properties --check
      kinesis-publishers multilang my.properties
    """
    daemon = daemon_config(pairs_in(read_file(config), name=config))
    for note in daemon.unused:
        say(f"Warning: {note}.")
    if shutil.which(daemon.command[0]) is None:
        raise InvalidOptionError(
            f"executableName: there is no program {daemon.command[0]!r} on the PATH; give its "
            "path, and make it executable"
        )
    if check:
        say("No errors.")
    else:
        asyncio.run(run_daemon(daemon))


@define(eq=False)
class Processors(DeliverySink):
    """Hands each shard to a process of its own, which records what it has processed.

    Attributes:
        is_stopping: set when processors have to stop: asked for, or after an end or a failure.
        failure: the first failure, of a processor or of reading.
        scope, fetcher: where processors work, and what reads; set before anything is read.
    """

    _config: DaemonConfig
    _clock: Clock
    is_stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    failure: KinesisPublishersError | None = field(default=None, init=False)
    _has_stopped: asyncio.Event = field(factory=asyncio.Event, init=False)
    scope: TaskScope = field(init=False)
    fetcher: KinesisDataFetcher = field(init=False)
    _running: dict[ShardKey, ShardProcessor] = field(factory=dict, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    # The shards whose last answer had records.
    _busy: set[ShardKey] = field(factory=set, init=False)

    def _processor(self, shard: Shard) -> ShardProcessor:
        """Return the processor of a shard; a new one waits for the end of the former one."""
        key = shard.key
        former = self._running.get(key)
        if former is not None and not former.is_cut:
            return former
        assert self.fetcher.checkpointer is not None, "a daemon has an application"
        checkpoints = ShardCheckpoints(key, self.fetcher.checkpointer, self.fetcher.sharing)
        processor = ShardProcessor(shard, self._config, checkpoints, self._clock, former)
        self._running[key] = processor
        task = self.scope.spawn(self._run(processor), name=str(shard))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return processor

    async def _run(self, processor: ShardProcessor) -> None:
        try:
            await processor.run()
        except ProcessorError as error:
            self._stop_by(error)
        finally:
            if self._running.get(processor.shard.key) is processor:
                del self._running[processor.shard.key]

    def _stop_by(self, error: KinesisPublishersError) -> None:
        if self.failure is not None:
            _LOGGER.error("%s", error)  # The first one is raised.
        self.failure = self.failure or error
        self.is_stopping.set()

    async def read(self) -> None:
        """Read until the end, if there is one; then, or if reading fails, processors have to stop.

        Checkpoints can still be written, unless others have got the shards meanwhile.
        """
        try:
            await self.fetcher.run()
        except KinesisPublishersError as error:
            self._stop_by(error)
        self.is_stopping.set()

    async def deliver(self, delivery: Delivery) -> None:
        try:
            if not self.is_stopping.is_set():
                self._busy.add(delivery.shard.key)
                processor, batch = self._processor(delivery.shard), delivery.batch
                with self.fetcher.slow_calls.watching("the processor", batch.shard.key, batch):
                    await processor.process(delivery)
            if self.is_stopping.is_set():
                # Nothing more is processed: read no further.
                await self._has_stopped.wait()
        finally:
            delivery.release()

    def observe(self, status: ShardStatus) -> None:
        if self.is_stopping.is_set():
            return
        key, was_busy = status.shard.key, status.shard.key in self._busy
        self._busy.discard(key)
        known = self._running.get(key)
        if status.progress.is_ended:
            self._processor(status.shard).end(status.progress)
        elif known is None:
            # It begins with its shard, not with the first record.
            self._processor(status.shard)
        elif self._config.passes_empty and not was_busy:
            known.pass_empty(status.millis_behind_latest)

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        if (processor := self._running.get(shard)) is not None:
            processor.cut()
            if is_lost:
                processor.leave(is_lost=True)

    async def let_go(self, shard: ShardKey) -> None:
        if (processor := self._running.get(shard)) is not None:
            processor.leave(is_lost=False)
            await processor.has_ended.wait()

    async def shut_down(self) -> None:
        """Let every processor finish what it has, and stop; kill those that take too long."""
        for one in tuple(self._running.values()):
            one.leave(is_lost=False)
        try:
            async with self._clock.timeout(self._config.grace_seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            _LOGGER.warning(
                "Processors that take more than %g seconds (shutdownGraceMillis) are killed: %s",
                self._config.grace_seconds,
                ", ".join(one.get_name() for one in self._tasks),
            )
            for task in self._tasks:
                task.cancel()
        self._has_stopped.set()


async def run_daemon(config: DaemonConfig) -> None:
    """Read, and let processes process, until a signal, or the end if there is one.

    Raises:
        KinesisPublishersError: a processor (``ProcessorError``), reading, or writing checkpoints
            has failed; the processors have been stopped in order.
    """
    processors = Processors(config, SystemClock())
    async with (
        KinesisDataFetcher.from_properties(
            config.properties, processors, records_deliveries=False
        ) as fetcher,
        TaskScope() as scope,
    ):
        processors.fetcher, processors.scope = fetcher, scope
        scope.spawn(processors.read(), name="read streams")
        with stopped_by_signals(lambda _: processors.is_stopping.set()):
            await processors.is_stopping.wait()
            await processors.shut_down()
        fetcher.stop()
    if processors.failure is not None:
        raise processors.failure
