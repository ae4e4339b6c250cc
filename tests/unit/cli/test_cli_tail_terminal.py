"""``tail`` on a real terminal: its keys, its last words, and the terminal that it leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.cli.cli_support import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.cli.cli_support import RunCommand

_TAIL = [sys.executable, "-m", "kinesis_publishers.cli.main", "tail"]
_ENDS_WITHIN_SECONDS = 60
_BEGIN = ("--start", "TRIM_HORIZON")


class Terminal:
    """A terminal of 100 columns, with a process whose terminal it is."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._ours, (24, 100))
        self.mode = termios.tcgetattr(self._ours)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, **streams: Any) -> subprocess.Popen[bytes]:
        everything = dict.fromkeys(("stdin", "stdout", "stderr"), self._theirs)
        self._child = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(self._theirs, termios.TIOCSCTTY, 0),
            env=os.environ | {"TERM": "xterm-256color"},
            **everything | streams,
        )
        return self._child

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read_until(self, text: str) -> str:
        found = b""
        while text.encode() not in found:
            found += os.read(self._ours, 65536)
        return found.decode()

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._ours) == self.mode

    def ends(self) -> int:
        assert self._child is not None
        return self._child.wait(_ENDS_WITHIN_SECONDS)

    def close(self) -> None:
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    try:
        yield terminal
    finally:
        terminal.close()


def tail(run: RunCommand, *options: str) -> list[str]:
    return [*_TAIL, "--config", str(run.path), *_BEGIN, *options]


def test_keys_sort_pause_and_quit(run: RunCommand, terminal: Terminal) -> None:
    run.server.put_many(ORDERS, [("k", b'{"path": "C:\\\\new"}')])
    terminal.start(*tail(run))
    terminal.read_until("s sort: Shard ↑")
    terminal.read_until('{"path": "C:\\\\new"}')
    assert not terminal.is_as_before()
    terminal.press("s")
    terminal.read_until("sort: Records/s ↓")
    terminal.press("r")
    terminal.read_until("sort: Records/s ↑")
    # An arrow key, and one without a meaning.
    terminal.press("\x1b[A")
    terminal.press("x")
    terminal.press(" ")
    terminal.read_until("PAUSED")
    calls = len(run.server.calls("GetRecords"))
    run.server.put_many(ORDERS, [("k", b"while it is paused")])
    # Each shard is asked at least once more.
    while len(run.server.calls("GetRecords")) < calls + 4:
        terminal.read_until("PAUSED")
    terminal.press("r")
    assert "while it" not in terminal.read_until("sort: Records/s ↓")
    terminal.press("p")
    terminal.read_until("while it is paused")
    terminal.press("q")
    shown = terminal.read_until("Ended at the tip")
    assert "Read 2 records (37 B) of 2 shards in " in shown
    assert "stopped" in shown
    assert terminal.ends() == 0
    assert terminal.is_as_before()


def interrupt(terminal: Terminal, _: subprocess.Popen[bytes]) -> None:
    terminal.press("\x03")


def terminate(_: Terminal, child: subprocess.Popen[bytes]) -> None:
    child.terminate()


@pytest.mark.parametrize(("end", "code"), [(interrupt, 130), (terminate, 143)])
def test_a_signal_says_what_was_read_and_nothing_else(
    run: RunCommand, terminal: Terminal, end: Callable[..., None], code: int
) -> None:
    run.server.put_many(ORDERS, [("k", b"an order")])
    child = terminal.start(*tail(run))
    terminal.read_until("an order")
    terminal.read_until("q quit")
    end(terminal, child)
    after = terminal.read_until("Ended at the tip")
    # The last picture has no keys. Below it is the cursor again, and the summary alone.
    picture, _, below = after.rpartition("\x1b[?25h")
    assert "quit" not in picture.rpartition("Shard")[2]
    assert re.fullmatch(
        r"\s*Read 1 record \(8 B\) of [12] shards? in [\d.]+ s\.\r\n"
        r"On average .* records/s and .*/s; largest lag .*\.\r\nEnded at the tip.*\s*",
        below,
    )
    assert terminal.ends() == code
    assert terminal.is_as_before()


def test_an_error_gives_the_terminal_back(run: RunCommand, terminal: Terminal) -> None:
    run.server.put_many(ORDERS, [("k", b"an order")])
    terminal.start(*tail(run))
    terminal.read_until("an order")
    run.server.add_fault(Fault("GetRecords", "error", code="AccessDeniedException", message="no"))
    assert "Read 1 record" in terminal.read_until("allow kinesis:GetRecords")
    assert terminal.ends() == 1
    assert terminal.is_as_before()


def test_a_second_signal_finds_the_terminal_in_order(run: RunCommand, terminal: Terminal) -> None:
    run.server.put_many(ORDERS, [("k", b"an order")])
    run.server.add_fault(Fault("DeregisterStreamConsumer", "delay", delay_seconds=3600))
    fan_out = ("kinesis.stream.recordpublisher=EFO", "kinesis.stream.efo.consumername=tail")
    child = terminal.start(*tail(run, "-P", fan_out[0], "-P", fan_out[1]))
    terminal.read_until("an order")
    child.terminate()
    terminal.read_until("\x1b[?25h")
    assert terminal.is_as_before()
    child.terminate()
    assert terminal.ends() == -signal.SIGTERM


def test_in_the_background_there_are_no_keys_and_nothing_stops(
    run: RunCommand, terminal: Terminal
) -> None:
    run.server.put_many(ORDERS, [("k", b"an order")])
    job = ["bash", "-c", 'set -m; "$@" & wait $!', "bash", *tail(run, "-n", "1")]
    terminal.start(*job)
    assert "quit" not in terminal.read_until("Read 1 record")
    assert terminal.ends() == 0
    assert terminal.is_as_before()


@pytest.mark.parametrize("option", ["--lines", "--json"])
def test_the_summary_of_lines_is_for_a_person(
    run: RunCommand, terminal: Terminal, option: str
) -> None:
    run.server.put_many(ORDERS, [("k", b"an order")])
    child = terminal.start(*tail(run, "--end", "LATEST", option), stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as output:
        assert len(output.read().splitlines()) == 1
    assert terminal.read_until("Ended at the tip").startswith("Read 1 record (8 B)")
    assert terminal.ends() == 0


def test_a_payload_of_a_line_can_be_pasted_into_jq(run: RunCommand, terminal: Terminal) -> None:
    order = {"path": "C:\\new", "text": 'a\n"b"\u202e', "price": 1.5}
    payload = json.dumps(order, indent=2, ensure_ascii=False)
    run.server.put_many(ORDERS, [("k", payload.encode())])
    terminal.start(*tail(run, "--end", "LATEST", "--lines"))
    line = terminal.read_until("Ended").splitlines()[0]
    assert json.loads(line.split("  ", 3)[3]) == order
    assert line.isprintable()
