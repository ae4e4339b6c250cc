# ruff: noqa: E501 - the texts are as they are shown
"""What the screen shows after a mistake, in plain Python and on the command line: approved texts.

Each text is all that is written to standard error, except for the frames of asyncio. A change of a
text is a change of what people read: make it here, too.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import records
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from tests.integration.config.screen import Screen, register_consumers, without_marks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DENIED = Fault(
    "GetRecords",
    "error",
    code="AccessDeniedException",
    message="User: arn:aws:iam::123456789012:user/me is not authorized",
    times=1000,
)
_HERE = "region='us-east-1', endpoint=ENDPOINT"


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(evolve(Limits.off(), consumers_per_stream=20)) as server:
        server.create_stream("orders")
        server.put_many("orders", [("customer-1", b"a lamp")])
        yield server


@pytest.fixture
def screen(server: LocalKinesis, tmp_path: Path) -> Screen:
    return Screen(server, tmp_path)


def in_a_loop(how: str) -> str:
    return f"from kinesis_publishers import records\nfor record in records({how}): pass\n"


def traceback_of(how: str, message: str) -> str:
    """Return what is shown of a mistake in :func:`in_a_loop`: the line of it, and the message."""
    return (
        "Traceback (most recent call last):\n"
        '  File "mine.py", line 3, in <module>\n'
        f"    for record in records({how}): pass\n"
        f"{message}\n"
    )


_FOUND_BEFORE_ANY_CALL = {
    "a typo": (
        "streamx='orders'",
        (
            "kinesis_publishers.errors.ConfigErrors: 2 configuration problems:\n"
            "  - streamx: unknown option; did you mean stream?\n"
            "  - stream (kinesis.streams) is required: set it to names or ARNs of streams, separated "
            "by commas"
        ),
    ),
    "a type": (
        "stream='orders', pending_maxrecords='many'",
        (
            "kinesis_publishers.errors.ConfigErrors: 1 configuration problem:\n"
            "  - pending_maxrecords: got 'many', expected a whole number of at least 1"
        ),
    ),
}


@pytest.mark.parametrize("mistake", _FOUND_BEFORE_ANY_CALL)
def test_in_the_keywords(screen: Screen, mistake: str) -> None:
    how, message = _FOUND_BEFORE_ANY_CALL[mistake]
    lines = without_marks(screen.python(in_a_loop(how))).splitlines()
    assert lines[:3] == traceback_of(how, "").splitlines()[:3]
    assert "\n".join(lines[-len(message.splitlines()) :]) == message
    # One frame is ours: the function that was called.
    assert len(lines) <= 3 + 2 + len(message.splitlines())


_FOUND_BY_A_CALL = {
    "no region": (
        "stream='orders'",
        (
            "kinesis_publishers.errors.MissingOptionError: no region: set aws.region (as eu-west-1), "
            "or give the stream by its ARN, or set AWS_REGION in the environment"
        ),
    ),
    "no credentials": (
        f"stream='orders', {_HERE}",
        (
            "kinesis_publishers.errors.CredentialsError: DescribeStreamSummary of orders: no "
            "credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "aws.credentials.provider; a local server takes any"
        ),
    ),
    "a wrong stream": (
        f"stream='ordres', {_HERE}",
        (
            "kinesis_publishers.errors.StreamNotFoundError: DescribeStreamSummary of ordres: check the "
            "stream's name, the region and the account (ResourceNotFoundException: Stream ordres under "
            "account 123456789012 not found.)"
        ),
    ),
    "no permission": (
        f"stream='orders', {_HERE}, start='TRIM_HORIZON'",
        (
            "kinesis_publishers.errors.AccessDeniedError: GetRecords of orders/shardId-000000000000: "
            "allow kinesis:GetRecords in the IAM policy (AccessDeniedException: User: "
            "arn:aws:iam::123456789012:user/me is not authorized)"
        ),
    ),
    "a wrong endpoint": (
        (
            "stream='orders', region='us-east-1', endpoint='http://127.0.0.1:1', "
            "stream_describe_maxretries=0"
        ),
        (
            "kinesis_publishers.errors.RetriesExhaustedError: DescribeStreamSummary of orders: no "
            "connection: nothing listens: check the port (aws.endpoint), or start `kinesis-publishers "
            "local` (Could not connect to the endpoint URL: "
            '"http://127.0.0.1:1/"). DescribeStreamSummary failed once in N s, the last time with '
            "EndpointConnectionError. The service has not answered once: set "
            "kinesis.stream.describe.maxretries to wait longer for it."
        ),
    ),
    "a full list of consumers": (
        f"stream='orders', {_HERE}, publisher='EFO', consumer_name='mine'",
        (
            "kinesis_publishers.errors.LimitExceededError: The stream consumer mine cannot be "
            "registered: remove one that is not used (kinesis-publishers consumers deregister "
            "NAME), share one by its name, or read with kinesis.stream.recordpublisher = POLLING. "
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders takes 20 of them (50 with "
            "on-demand advantage), 5 of which may be CREATING at a time. It has 20 consumers: "
            + ", ".join(f"consumer-{number:02} (ACTIVE)" for number in range(20))
            + ". (RegisterStreamConsumer of mine on "
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders: a limit of the account was "
            "reached (LimitExceededException: Stream orders under account 123456789012 has its 20 "
            "registered consumers already.))"
        ),
    ),
}


@pytest.mark.parametrize("mistake", _FOUND_BY_A_CALL)
def test_in_what_is_asked_of_aws(screen: Screen, server: LocalKinesis, mistake: str) -> None:
    how, message = _FOUND_BY_A_CALL[mistake]
    if mistake != "no credentials":
        screen.has_credentials()
    if mistake == "no permission":
        server.add_fault(_DENIED)
    if mistake == "a full list of consumers":
        register_consumers(server, 20)
    assert without_marks(screen.python(in_a_loop(how))) == traceback_of(how, message)


def test_in_a_callback(screen: Screen) -> None:
    screen.has_credentials()
    shown = screen.python(
        """
        from kinesis_publishers import scan


        def process(record):
            return record.data["id"]

        where = {"region": "us-east-1", "endpoint": ENDPOINT}
        scan(process=process, stream="orders", start="TRIM_HORIZON", **where)
        """
    )
    assert without_marks(shown) == dedent(
        """\
        Traceback (most recent call last):
          File "mine.py", line 10, in <module>
            scan(process=process, stream="orders", start="TRIM_HORIZON", **where)
          File "mine.py", line 7, in process
            return record.data["id"]
        TypeError: byte indices must be integers or slices, not str
        It was raised by the callback for record NUMBER of orders/shardId-000000000000.
        """
    )


@pytest.mark.parametrize(
    "loop",
    [
        "for record in records({how}): print(record.data, flush=True)",
        "with records({how}) as stream: print(next(stream).data, flush=True); wait()",
        "scan(process=lambda record: print(record.data, flush=True), {how})",
        (
            "async def main():\n"
            "    async with read({how}) as stream:\n"
            "        async for record in stream: print(record.data, flush=True)\n"
            "    print('behind the loop')\n"
            "asyncio.run(main())"
        ),
        (
            "async def main():\n"
            "    async with read({how}) as stream:\n"
            "        print((await anext(stream)).data, flush=True)\n"
            "        while not stream.feed.is_stopping: await asyncio.sleep(0.01)\n"
            "    print('behind the loop')\n"
            "asyncio.run(main())"
        ),
        (
            "async def main():\n"
            "    async for record in read({how}): print(record.data, flush=True)\n"
            "    print('behind the loop')\n"
            "async def group():\n"
            "    async with asyncio.TaskGroup() as tasks: tasks.create_task(main())\n"
            "asyncio.run(group())"
        ),
    ],
    ids=["records", "left", "scan", "read", "read and left", "read in a task"],
)
def test_ctrl_c_ends_the_program_in_order_and_says_so_on_a_terminal(
    screen: Screen, server: LocalKinesis, tmp_path: Path, loop: str
) -> None:
    screen.has_credentials()
    how = (
        f"stream='orders', region='us-east-1', endpoint={server.endpoint_url!r}, "
        "start='TRIM_HORIZON', application='mine'"
    )
    program = (
        "import asyncio, signal\nfrom kinesis_publishers import read, records, scan\n"
        "def wait():\n"
        "    while signal.getsignal(signal.SIGINT) is not signal.default_int_handler: pass\n"
        f"{loop.format(how=how)}\nprint('behind the program')"
    )
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=side, env=screen.environ
    ) as child:
        os.close(side)
        assert child.stdout is not None
        assert child.stdout.readline() == b"b'a lamp'\n"
        child.send_signal(signal.SIGINT)
        said = b""
        with suppress(OSError):  # nobody has the other side any more
            while part := os.read(terminal, 4096):
                said += part
        assert child.stdout.read() == b""
    os.close(terminal)
    # A shell shows that as 130.
    assert child.returncode == -signal.SIGINT
    lines = said.decode().splitlines()
    assert lines[:2] == ["", "Finishing what has begun. Ctrl-C again stops at once."]
    assert lines[-1] == "KeyboardInterrupt"
    # The record was finished, and the next run continues behind it.
    server.put_many("orders", [("customer-1", b"a shade")])
    store = str(tmp_path / "kinesis-publishers" / "checkpoints.sqlite3")
    connection = server.properties("orders")
    with records(connection, application="mine", checkpoint_sqlite_path=store) as stream:
        assert next(stream).data == b"a shade"


_COMMANDS = {
    "a typo": (
        ("tail", "orders", "-P", "kinesis.stream.initpso=LATEST"),
        "Error: kinesis.stream.initpso: unknown option; did you mean kinesis.stream.initpos?\n",
    ),
    "a type": (
        ("tail", "orders", "-P", "kinesis.pending.maxrecords=many"),
        "Error: kinesis.pending.maxrecords: got 'many', expected a whole number of at least 1\n",
    ),
    "no region": (
        ("tail", "orders"),
        (
            "Error: no region: set --region (as eu-west-1), or give the stream by its ARN, or set "
            "AWS_REGION in the environment\n"
        ),
    ),
    "no credentials": (
        ("put", "--stream", "orders", "--region", "us-east-1", "--endpoint", "ENDPOINT", "a"),
        (
            "Error: DescribeStreamSummary of orders: no credentials: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or aws.credentials.provider; a local server takes "
            "any\n"
        ),
    ),
    "a wrong stream": (
        ("tail", "ordres", "--region", "us-east-1", "--endpoint", "ENDPOINT"),
        (
            "Error: DescribeStreamSummary of ordres: check the stream's name, the region and the "
            "account (ResourceNotFoundException: Stream ordres under account 123456789012 not "
            "found.)\n"
        ),
    ),
    "no permission": (
        ("tail", "orders", "--region", "us-east-1", "--endpoint", "ENDPOINT", "--lines"),
        (
            "Error: GetRecords of orders/shardId-000000000000: allow kinesis:GetRecords in the IAM "
            "policy (AccessDeniedException: User: arn:aws:iam::123456789012:user/me is not "
            "authorized)\n"
        ),
    ),
    "a wrong option": (
        ("tail", "orders", "--lins"),
        (
            "Usage: python -m kinesis_publishers.cli.main tail [OPTIONS] [STREAM]...\n"
            "Try 'python -m kinesis_publishers.cli.main tail --help' for help.\n\n"
            "Error: No such option '--lins'. Did you mean '--lines'?\n"
        ),
    ),
}


@pytest.mark.parametrize("mistake", _COMMANDS)
def test_on_the_command_line(screen: Screen, server: LocalKinesis, mistake: str) -> None:
    arguments, message = _COMMANDS[mistake]
    if mistake != "no credentials":
        screen.has_credentials()
    if mistake == "no permission":
        server.add_fault(_DENIED)
    assert screen.command(*arguments) == message
