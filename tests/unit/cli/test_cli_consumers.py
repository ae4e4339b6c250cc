"""``consumers``: each command may be run twice, and says what to put into the properties."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, LocalKinesis
from tests.unit.cli.cli_support import ORDERS, RunCommand, run_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEY = "kinesis.stream.efo.consumerarn.orders"


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[RunCommand]:
    """A stream whose consumers are CREATING and DELETING for a long time."""
    behaviour = Behaviour(consumer_creating_seconds=3600, consumer_deleting_seconds=3600)
    with LocalKinesis.in_thread(behaviour=behaviour) as server:
        server.create_stream(ORDERS)
        yield RunCommand(server, tmp_path / "slow.properties")


def test_properties_that_still_lack_the_consumer_are_enough_to_register_it(
    run: RunCommand,
) -> None:
    with run.path.open("a") as file:
        file.write("kinesis.stream.recordpublisher=EFO\nkinesis.stream.efo.registration=NONE\n")
    result = run("consumers register", "reports")
    assert result.exit_code == 0, result.stderr
    with run.path.open("a") as file:
        file.write(result.stdout)
    run.server.put_many(ORDERS, [("k", b"pushed")])
    assert "pushed" in run("tail", "--start", "TRIM_HORIZON", "-n", "1").stdout


def test_a_consumer_that_is_there_is_used(run: RunCommand) -> None:
    first, second = run("consumers register", "reports"), run("consumers register", "reports")
    assert first.stdout == second.stdout
    assert "reports is there already on orders." in second.stderr
    assert len(run.server.calls("RegisterStreamConsumer")) == 1


def test_the_list_has_every_consumer_with_its_arn(run: RunCommand) -> None:
    arns = [run.server.register_consumer(ORDERS, name) for name in ("a", "b")]
    table = run("consumers list")
    assert all(arn in table.stdout for arn in arns)
    rows = [json.loads(line) for line in run("consumers list", "--json").stdout.splitlines()]
    assert [(row["consumer_name"], row["consumer_arn"], row["status"]) for row in rows] == [
        ("a", arns[0], "ACTIVE"),
        ("b", arns[1], "ACTIVE"),
    ]


def test_a_stream_without_consumers_is_no_error(run: RunCommand) -> None:
    result = run("consumers list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "There are no stream consumers.\n"


def test_waiting_for_an_active_consumer_returns_at_once(run: RunCommand) -> None:
    arn = run.server.register_consumer(ORDERS, "reports")
    assert run("consumers wait", "reports").stdout == f"{_KEY}={arn}\n"


def test_waiting_for_nothing_says_how_to_register(run: RunCommand) -> None:
    result = run("consumers wait", "reports")
    assert result.exit_code == 1
    assert "kinesis-publishers consumers register reports" in result.stderr


@pytest.mark.parametrize("command", ["wait --timeout 50ms", "register --wait"])
def test_waiting_ends_with_the_timeout(slow: RunCommand, command: str) -> None:
    slow.server.register_consumer(ORDERS, "reports")
    name, *options = command.split()
    quick = ("-P", "kinesis.stream.registerstreamconsumer.timeout=50ms")
    result = slow(f"consumers {name}", "reports", *options, *quick)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search(r"is still CREATING after \d+ s", result.stderr)


def test_a_consumer_that_is_being_removed_cannot_be_used(slow: RunCommand) -> None:
    slow.server.register_consumer(ORDERS, "reports")
    slow.server.deregister_consumer(ORDERS, "reports")
    for command in ("register", "wait"):
        result = slow(f"consumers {command}", "reports")
        assert result.exit_code == 1
        assert "is being removed" in result.stderr


def test_a_full_stream_names_its_consumers(run: RunCommand) -> None:
    for number in range(20):
        run.server.register_consumer(ORDERS, f"c{number}")
    result = run("consumers register", "one-more")
    assert result.exit_code == 1
    assert "It has 20 consumers: c0 (ACTIVE), c1 (ACTIVE)" in result.stderr


def test_removing_asks_first(run: RunCommand) -> None:
    arn = run.server.register_consumer(ORDERS, "reports")
    refused = run("consumers deregister", "reports", stdin="n\n")
    assert refused.exit_code == 1
    assert f"{arn} (ACTIVE)" in refused.stderr
    assert "nothing was removed" in refused.stderr
    assert run.server.consumers(ORDERS) == {"reports": "ACTIVE"}
    assert run("consumers deregister", "reports", stdin="y\n").exit_code == 0
    assert run.server.consumers(ORDERS) == {}


def test_removing_twice_is_no_error(run: RunCommand) -> None:
    run.server.register_consumer(ORDERS, "reports")
    assert run("consumers deregister", "reports", "--yes").exit_code == 0
    again = run("consumers deregister", "reports", "--yes")
    assert again.exit_code == 0
    assert "There is no stream consumer reports: nothing to do." in again.stderr


def test_an_arn_names_its_stream_and_no_later_consumer(run: RunCommand) -> None:
    arn = run.server.register_consumer(ORDERS, "reports")
    older = f"{arn.rpartition(':')[0]}:1500000000"
    assert "nothing to do" in run("consumers deregister", older, "--yes").stderr
    assert run("consumers deregister", arn, "--yes").exit_code == 0
    assert run.server.consumers(ORDERS) == {}


@pytest.mark.parametrize("name", ["a b", "", "arn:aws:kinesis:x", "x" * 129])
def test_a_name_that_no_consumer_can_have_is_wrong_usage(name: str) -> None:
    result = run_command("consumers", "deregister", name, "--stream", ORDERS)
    assert result.exit_code == 2
    assert "expected the name or the ARN of a stream consumer" in result.stderr
