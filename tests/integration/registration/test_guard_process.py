"""The guard process, with readers that are real processes and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import botocore
import psutil
import pytest
from attrs import define, field

from kinesis_publishers import Properties
from kinesis_publishers.errors import ConsumerGuardError
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis
from tests.integration.spark.planner.planner_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

_READER = Path(__file__).with_name("guard_reader.py")
_STREAM = "orders"
_NAME = "app"
_DEADLINE_SECONDS = 60.0
_LINGER_SECONDS = 0.2
_SECRET = "the-secret-key-of-a-test"
# Reads until its standard input ends.
_FETCHER = """
import asyncio, json, sys
from kinesis_publishers import KinesisDataFetcher

async def main():
    async def on_batch(shard, batch):
        pass

    async with KinesisDataFetcher.from_properties(json.loads(sys.argv[1]), on_batch) as fetcher:
        task = asyncio.create_task(fetcher.run())
        while not fetcher.statuses or fetcher.statuses[0].millis_behind_latest is None:
            await asyncio.sleep(0.01)
        print("reading", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        fetcher.stop()
        await task

asyncio.run(main())
"""


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def waits_for_its_guard(thread: threading.Thread) -> bool:
    """Say whether ``thread`` has created its guard and waits until it is ready, or no longer."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented
    while frame is not None:
        if frame.f_code.co_name == "_wait_until_ready":
            return True
        frame = frame.f_back
    return not thread.is_alive()


def catches(process: psutil.Process, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)


@define(eq=False)
class Reader:
    """A running reader, its guard, and a child of it that lives on when it is killed."""

    process: subprocess.Popen[str]
    guard: psutil.Process = field(init=False)
    child: psutil.Process = field(init=False)
    consumer_arn: str = field(init=False)

    @classmethod
    def start(cls, properties: dict[str, str], stream_arn: str, linger_seconds: float) -> Self:
        reader = [sys.executable, str(_READER), json.dumps(properties), stream_arn]
        command = [*reader, str(linger_seconds)]
        return cls(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def wait_until_reading(self) -> None:
        assert self.process.stdout is not None
        guard, child, self.consumer_arn = self.process.stdout.readline().split()
        self.guard, self.child = psutil.Process(int(guard)), psutil.Process(int(child))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        self.kill()
        self.process.stdout.close()  # type: ignore[union-attr]
        for process in (getattr(self, "child", None), getattr(self, "guard", None)):
            if process is not None and runs(process):
                process.kill()


class StartReaders(Protocol):
    def __call__(self, count: int, linger_seconds: float = ...) -> list[Reader]: ...


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep the leases of a test apart; return where they are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "kinesis-publishers"


@pytest.fixture
def properties(local_kinesis: LocalKinesis) -> dict[str, str]:
    local_kinesis.create_stream(_STREAM)
    return {
        **local_kinesis.properties(_STREAM),
        "aws.credentials.provider.basic.secretkey": _SECRET,
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": _NAME,
        "kinesis.stream.deregisterstreamconsumer.maxretries": "1",
    }


@pytest.fixture
def stream_arn(local_kinesis: LocalKinesis) -> str:
    behaviour = local_kinesis.behaviour
    return f"arn:aws:kinesis:{behaviour.region}:{behaviour.account_id}:stream/{_STREAM}"


@pytest.fixture
def start_readers(properties: dict[str, str], stream_arn: str) -> Iterator[StartReaders]:
    """Return a function that starts readers at once and waits until they read."""
    started: list[Reader] = []

    def start(count: int, linger_seconds: float = _LINGER_SECONDS) -> list[Reader]:
        readers = [Reader.start(properties, stream_arn, linger_seconds) for _ in range(count)]
        started.extend(readers)
        for reader in readers:
            reader.wait_until_reading()
        return readers

    yield start
    for reader in started:
        reader.clean_up()


def test_the_last_of_several_killed_readers_has_its_consumer_removed(
    local_kinesis: LocalKinesis, start_readers: StartReaders
) -> None:
    first, second = start_readers(2)
    assert first.consumer_arn == second.consumer_arn
    first.kill()
    eventually(lambda: not runs(first.guard), "the end of the first guard")
    assert list(local_kinesis.consumers(_STREAM)) == [_NAME]
    killed_at = time.monotonic()
    second.kill()
    eventually(lambda: not local_kinesis.consumers(_STREAM), "the removal of the consumer")
    eventually(lambda: not runs(second.guard), "the end of the second guard")
    assert len(local_kinesis.calls("RegisterStreamConsumer")) == 1
    (removal,) = local_kinesis.calls("DeregisterStreamConsumer")
    # A reader that starts again at once would have found its consumer.
    assert removal.at_seconds - killed_at > 0.9 * _LINGER_SECONDS
    assert runs(first.child)
    assert runs(second.child)


def test_an_interrupt_leaves_the_guard_alone_and_a_termination_makes_it_hurry(
    local_kinesis: LocalKinesis, start_readers: StartReaders
) -> None:
    (reader,) = start_readers(1, linger_seconds=2 * _DEADLINE_SECONDS)
    reader.guard.send_signal(signal.SIGINT)
    eventually(lambda: catches(reader.guard, signal.SIGTERM), "a guard that can be told to hurry")
    reader.guard.terminate()
    with pytest.raises(psutil.TimeoutExpired):
        reader.guard.wait(0.2)
    reader.kill()
    eventually(lambda: not local_kinesis.consumers(_STREAM), "the removal of the consumer")


def test_credentials_are_on_no_command_line_and_in_no_environment(
    start_readers: StartReaders,
) -> None:
    (reader,) = start_readers(1)
    assert _SECRET in " ".join(psutil.Process(reader.process.pid).cmdline()), "the test's own"
    assert _SECRET not in " ".join(reader.guard.cmdline())
    assert _SECRET not in " ".join(reader.guard.environ().values())


def test_what_cannot_be_removed_is_logged_with_the_command_that_does_it(
    local_kinesis: LocalKinesis,
    start_readers: StartReaders,
    leases: Path,
) -> None:
    (reader,) = start_readers(1)
    local_kinesis.add_fault(
        Fault("DeregisterStreamConsumer", "error", code="AccessDeniedException", times=None)
    )
    reader.kill()
    eventually(lambda: not runs(reader.guard), "the end of the guard")
    said = (leases / "consumer-guard.log").read_text()
    assert "aws kinesis deregister-stream-consumer" in said
    assert reader.consumer_arn in said
    assert "kinesis:DeregisterStreamConsumer" in said
    local_kinesis.clear_faults()
    # It is not forgotten: the next reader to leave removes it.
    (next_one,) = start_readers(1)
    next_one.kill()
    eventually(lambda: not local_kinesis.consumers(_STREAM), "the removal of the consumer")


def test_a_guard_does_its_work_after_the_files_of_its_reader_are_gone(
    local_kinesis: LocalKinesis,
    start_readers: StartReaders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came_with_the_job = tmp_path / "job"
    came_with_the_job.mkdir()
    package = came_with_the_job / "botocore"
    package.symlink_to(Path(botocore.__file__).parent, target_is_directory=True)
    monkeypatch.setenv("PYTHONPATH", str(came_with_the_job), prepend=os.pathsep)
    (reader,) = start_readers(1)
    package.unlink()
    reader.kill()
    eventually(lambda: not local_kinesis.consumers(_STREAM), "the removal of the consumer")


def test_a_guard_without_a_server_gives_up(
    local_kinesis: LocalKinesis, start_readers: StartReaders, leases: Path
) -> None:
    (reader,) = start_readers(1)
    local_kinesis.add_fault(Fault("*", "reset", times=None))
    reader.kill()
    eventually(lambda: not runs(reader.guard), "the end of the guard")
    assert reader.consumer_arn in (leases / "consumer-guard.log").read_text()


def test_a_guard_serves_until_it_is_let_go_and_is_replaced_if_it_is_killed(
    properties: dict[str, str], stream_arn: str
) -> None:
    guard = ConsumerGuard(Properties.parse(properties))
    before = psutil.Process().children()

    def own() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if child not in before]

    try:
        guard.hold([stream_arn])
        (first,) = own()
        guard.hold([stream_arn])
        assert own() == [first]
        first.kill()
        # Nobody calls it, and nothing is left of the first one, not even a zombie.
        eventually(lambda: own() not in ([], [first]), "another guard")
        guard.hold([stream_arn])
        assert len(own()) == 1
    finally:
        guard.close()
    eventually(lambda: not own(), "the end of the guard")


def test_a_process_forked_while_a_guard_starts_does_not_keep_it_waiting(
    properties: dict[str, str], stream_arn: str
) -> None:
    guard = ConsumerGuard(Properties.parse(properties))
    before = psutil.Process().children()
    holding = threading.Thread(target=guard.hold, args=([stream_arn],))
    holding.start()
    # Not before: while subprocess creates the guard, a fork would inherit a pipe of its own.
    eventually(lambda: waits_for_its_guard(holding), "a guard that starts")
    (started,) = [child for child in psutil.Process().children() if child not in before]
    reading, writing = os.pipe()
    forked = os.fork()
    if not forked:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        holding.join()
        eventually(lambda: catches(started, signal.SIGTERM), "a guard that can be told to hurry")
        started.terminate()
        guard.close()
        eventually(lambda: not runs(started), "the end of the guard")
    finally:
        os.close(reading)
        os.close(writing)
        os.waitpid(forked, 0)


def test_a_dismissed_guard_has_ended_and_is_not_replaced(
    local_kinesis: LocalKinesis, properties: dict[str, str], stream_arn: str
) -> None:
    guard = ConsumerGuard(Properties.parse(properties))
    before = psutil.Process().children()
    guard.hold([stream_arn])
    guard.dismiss()
    assert psutil.Process().children() == before
    eventually(
        lambda: "consumer-guard-watch" not in [one.name for one in threading.enumerate()],
        "the end of its watch",
    )
    assert psutil.Process().children() == before


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_fetcher_leaves_no_consumer_behind_however_it_ends(
    local_kinesis: LocalKinesis, properties: dict[str, str], is_killed: bool
) -> None:
    command = [sys.executable, "-c", _FETCHER, json.dumps(properties)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            assert reader.stdout.readline() == b"reading\n"
            (guard,) = psutil.Process(reader.pid).children()
            if is_killed:
                guard.terminate()  # It need not wait for another reader.
                reader.kill()
            else:
                reader.stdin.close()
        finally:
            reader.wait() if is_killed else reader.wait(_DEADLINE_SECONDS)
        if not is_killed:
            assert not runs(guard)
    eventually(lambda: not local_kinesis.consumers(_STREAM), "the removal of the consumer")
    eventually(lambda: not runs(guard), "the end of the guard")


@pytest.mark.parametrize(
    ("executable", "reason"),
    [("/nonexistent/python", "cannot be run"), ("/bin/false", "ended at once")],
)
def test_a_guard_that_cannot_start_says_why_and_what_to_do(
    properties: dict[str, str],
    stream_arn: str,
    monkeypatch: pytest.MonkeyPatch,
    executable: str,
    reason: str,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    guard = ConsumerGuard(Properties.parse(properties))
    with pytest.raises(ConsumerGuardError, match=rf"{reason}.*efo\.deregister = never"):
        guard.hold([stream_arn])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "kinesis.stream.recordpublisher": "kinesis_publishers.testing.fakes:"
            "ScriptedPublisherFactory"
        },
        {
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.consumername": _NAME,
            "kinesis.stream.efo.deregister": "never",
        },
        {
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.registration": "NONE",
            "kinesis.stream.efo.consumerarn.orders": "arn:aws:kinesis:us-east-1:123456789012:"
            "stream/orders/consumer/app:1",
        },
    ],
)
def test_who_leaves_no_consumer_behind_needs_no_guard(settings: dict[str, str]) -> None:
    assert (
        ConsumerGuard.for_properties(Properties.parse({"kinesis.streams": "orders"} | settings))
        is None
    )
