"""Commands as processes: signals, pipes and terminals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import pytest

from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.cli.cli_support import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.cli.cli_support import RunCommand

_MAIN = [sys.executable, "-m", "kinesis_publishers.cli.main"]
_FAN_OUT = (
    *("-P", "kinesis.stream.recordpublisher=EFO"),
    *("-P", "kinesis.stream.efo.consumername=tail"),
)
_ENDS_WITHIN_SECONDS = 30


@contextmanager
def process(
    run: RunCommand, command: str, *options: str, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*_MAIN, *command.split(), "--config", str(run.path), *options],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0, **streams},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def ending(child: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Wait until a process has ended by itself; return its exit code and its messages."""
    assert child.stderr is not None
    errors = child.stderr.read()
    return child.wait(_ENDS_WITHIN_SECONDS), errors


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def test_a_terminal_that_goes_ends_tail_without_a_traceback(run: RunCommand) -> None:
    run.server.put_many(ORDERS, [("k", b"first")])
    with process(run, "tail", "--start", "TRIM_HORIZON") as child:
        assert pipe(child.stdout).readline().endswith(b"first\n")
        child.send_signal(signal.SIGHUP)
        assert ending(child) == (129, b"")


def test_a_signal_removes_the_consumer_that_tail_registered(run: RunCommand) -> None:
    run.server.put_many(ORDERS, [("k", b"pushed")])
    with process(run, "tail", *_FAN_OUT, "--start", "TRIM_HORIZON") as child:
        assert pipe(child.stdout).readline().endswith(b"pushed\n")
        assert list(run.server.consumers(ORDERS)) == ["tail"]
        child.send_signal(signal.SIGTERM)
        assert ending(child) == (143, b"")
    assert run.server.consumers(ORDERS) == {}


def test_a_reader_that_goes_ends_tail_although_nothing_more_comes(run: RunCommand) -> None:
    run.server.put_many(ORDERS, [("k", b"only")])
    with process(run, "tail", "--start", "TRIM_HORIZON", "--json") as child:
        assert pipe(child.stdout).readline().startswith(b'{"stream_name":"orders"')
        pipe(child.stdout).close()
        assert ending(child) == (0, b"")


def test_a_reader_that_stands_still_does_not_keep_a_signal_from_ending_it(run: RunCommand) -> None:
    run.server.put_many(ORDERS, [("k", bytes(100_000)) for _ in range(20)])
    with process(run, "tail", "--start", "TRIM_HORIZON", "--json") as child:
        assert pipe(child.stdout).read(1) == b"{"
        child.send_signal(signal.SIGTERM)
        assert ending(child) == (143, b"")


def test_put_writes_lines_as_they_come_and_says_where_it_was_interrupted(run: RunCommand) -> None:
    with process(run, "put", "-k", "k", stdin=subprocess.PIPE) as child:
        pipe(child.stdin).write(b"one\ntwo\nunfinished")
        assert [pipe(child.stdout).readline().split()[2] for _ in range(2)] == [b"k", b"k"]
        child.send_signal(signal.SIGINT)
        code, errors = ending(child)
    assert code == 130
    assert errors == b"Interrupted: 2 records written.\n"
    written = [one.data for shard in run.server.records(ORDERS).values() for one in shard]
    assert written == [b"one", b"two"]


def test_put_writes_everything_although_its_output_is_not_read(run: RunCommand) -> None:
    with process(run, "put", stdin=subprocess.PIPE) as child:
        pipe(child.stdout).close()
        pipe(child.stdin).write(b"".join(b"%d\n" % number for number in range(2000)))
        pipe(child.stdin).close()
        assert ending(child) == (0, b"Wrote 2,000 records to orders.\n")
    assert sum(map(len, run.server.records(ORDERS).values())) == 2000


def read_until(fd: int, text: bytes) -> bytes:
    """Read from a terminal until ``text`` is there."""
    found = b""
    while text not in found:
        found += os.read(fd, 65536)
    return found


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def test_on_a_terminal_put_shows_how_far_it_is(run: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 60_000 + b"\n" + b"y\n" * 10)
    options = ("-q", "--rate", "20", "--file", str(file))
    with terminal() as (ours, theirs), process(run, "put", *options, stderr=theirs) as child:
        shown = read_until(ours, b"Wrote 11 records to orders.")
        assert b"100%" in shown
        assert b"11 records written" in shown
        assert child.wait(_ENDS_WITHIN_SECONDS) == 0


def test_no_color_leaves_the_table_without_colours(run: RunCommand) -> None:
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    with (
        terminal() as (ours, theirs),
        process(run, "shards", stdout=theirs, env=environ) as child,
    ):
        shown = read_until(ours, b"shardId-000000000001")
        assert child.wait(_ENDS_WITHIN_SECONDS) == 0
    assert b"\x1b[32m" not in shown


def test_an_interrupt_of_the_question_removes_nothing(run: RunCommand) -> None:
    run.server.register_consumer(ORDERS, "reports")
    with process(run, "consumers deregister", "reports", stdin=subprocess.PIPE) as child:
        question = b""
        while b"[y/N]" not in question:
            question += pipe(child.stderr).read(100)
        # Python notices a signal only after the read that it comes just before: as a person would,
        # press Ctrl-C again if nothing happens.
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_ENDS_WITHIN_SECONDS)
        code, rest = ending(child)
    assert (code, rest.strip()) == (130, b"")
    assert list(run.server.consumers(ORDERS)) == ["reports"]


_DENIED = Fault("GetRecords", "error", code="AccessDeniedException", message="not for you")
_DENIAL = "allow kinesis:GetRecords in the IAM policy (AccessDeniedException: not for you)\n"


def test_a_stream_that_does_not_exist_is_one_message(run: RunCommand) -> None:
    result = run("tail", "--stream", "nowhere")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: DescribeStreamSummary of nowhere: check the stream's name, the region and the "
        "account (ResourceNotFoundException: Stream nowhere under account 123456789012 not "
        "found.)\n"
    )


def test_a_call_that_is_refused_is_one_message(run: RunCommand) -> None:
    run.server.add_fault(_DENIED)
    result = run("tail")
    assert result.exit_code == 1
    assert re.fullmatch(rf"Error: GetRecords of orders/\S+: {re.escape(_DENIAL)}", result.stderr)


def test_debug_shows_what_is_logged_and_where_the_error_comes_from(run: RunCommand) -> None:
    run.server.add_fault(_DENIED)
    with process(run, "tail", "--debug") as child:
        code, errors = ending(child)
    lines = errors.decode().splitlines()
    assert code == 1
    assert lines[0].endswith("INFO kinesis_publishers: A fetcher of orders started.")
    assert any(
        "INFO kinesis_publishers: A fetcher of orders stopped after" in line for line in lines
    )
    assert "Traceback (most recent call last):" in lines
    assert f"{lines[-1]}\n".endswith(_DENIAL)


def test_a_wait_for_a_service_that_fails_is_announced_and_so_is_its_end(
    run: RunCommand,
) -> None:
    run.server.add_fault(Fault("DescribeStreamSummary", "error", code="InternalFailure", times=3))
    backoff = ("-P", "kinesis.stream.describe.backoff.max=1ms")
    with process(run, "shards", *backoff) as child:
        code, errors = ending(child)
    assert code == 0
    assert re.fullmatch(
        r"Warning: DescribeStreamSummary has failed since \S+ UTC, retry 2 in 0\.0 s, .*: "
        r"DescribeStreamSummary of orders: InternalFailure.*\n"
        r"Warning: DescribeStreamSummary works again\.\n",
        errors.decode(),
    )


_NO_ROOM = "The output cannot be written: No space left on device. "


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def full(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """An output that takes nothing, in the two ways in which Python writes to it."""
    with open("/dev/full", "wb") as output:
        yield {"stdout": output, "env": {**os.environ, "PYTHONUNBUFFERED": request.param}}


@pytest.mark.parametrize(("full", "options"), [("", ()), ("1", ("--json",))], indirect=["full"])
def test_put_writes_everything_although_its_output_has_no_room(
    run: RunCommand, full: dict[str, Any], options: tuple[str, ...]
) -> None:
    with process(run, "put", *options, stdin=subprocess.PIPE, **full) as child:
        pipe(child.stdin).write(b"".join(b"%d\n" % number for number in range(1200)))
        pipe(child.stdin).close()
        code, errors = ending(child)
    assert code == 0
    assert errors.decode().splitlines() == [
        f"{_NO_ROOM}Records are still written; those from number 1 on are not listed.",
        "Wrote 1,200 records to orders.",
    ]
    assert sum(map(len, run.server.records(ORDERS).values())) == 1200


@pytest.mark.parametrize("full", [""], indirect=True)
def test_put_writes_everything_although_it_can_say_nothing(
    run: RunCommand, full: dict[str, Any]
) -> None:
    streams = {"stdin": subprocess.PIPE, "stderr": full["stdout"], **full}
    with process(run, "put", **streams) as child:
        pipe(child.stdin).write(b"".join(b"%d\n" % number for number in range(1200)))
        pipe(child.stdin).close()
        child.wait(_ENDS_WITHIN_SECONDS)
    assert sum(map(len, run.server.records(ORDERS).values())) == 1200


@pytest.mark.parametrize(
    ("full", "command"), [("", "shards"), ("1", "tail --start TRIM_HORIZON")], indirect=["full"]
)
def test_an_output_without_room_is_one_message(
    run: RunCommand, full: dict[str, Any], command: str
) -> None:
    run.server.put_many(ORDERS, [("k", b"shown nowhere")])
    with process(run, command, **full) as child:
        code, errors = ending(child)
    assert (code, errors.decode()) == (1, f"Error: {_NO_ROOM}Write it to another place.\n")


def test_a_closed_standard_input_is_wrong_usage(run: RunCommand) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *_MAIN, "put", "--config", str(run.path)]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.endswith(b"Error: Standard input is closed: give DATA or --file.\n")


def test_a_closed_standard_output_is_wrong_usage_before_anything_is_written(
    run: RunCommand,
) -> None:
    put = [*_MAIN, "put", "--config", str(run.path), "--json", "a record"]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *put]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.endswith(b"Error: Standard output is closed.\n")
    assert run.server.calls() == []
