"""``list``, ``describe`` and ``create``, and how commands find a stream without a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.cli.shared import connection
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.cli.cli_support import ORDERS, run_command

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.unit.cli.cli_support import RunCommand


@pytest.fixture
def local(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Let ``--local`` find the server of this test, which has a port of its own."""
    here = {**connection.LOCAL, "aws.endpoint": run.server.endpoint_url}
    monkeypatch.setattr(connection, "LOCAL", here)
    return run


def test_streams_are_listed_page_by_page(run: RunCommand) -> None:
    for number in range(120):
        run.server.create_stream(f"stream-{number:03}")
    result = run("list")
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines)) == (0, 2 + 121)
    assert lines[2].split()[:3] == [ORDERS, "ACTIVE", "PROVISIONED"]
    listed = [json.loads(line)["name"] for line in run("list", "--json").stdout.splitlines()]
    assert listed == [ORDERS, *(f"stream-{number:03}" for number in range(120))]


def test_a_stream_is_described(run: RunCommand) -> None:
    run("consumers register", "reports", "--wait")
    run.server.reshard(ORDERS, 1)
    text = run("describe").stdout
    assert [line.split(maxsplit=1)[0] for line in text.splitlines()] == [
        ORDERS, "ARN", "status", "shards", "retention", "largest", "consumers",
    ]  # fmt: skip
    assert "1 open, 2 closed" in text
    assert "24 hours" in text
    assert "reports (ACTIVE)" in text
    described = json.loads(run("describe", ORDERS, "--json").stdout)
    assert (described["open_shards"], described["consumers"]) == (1, {"reports": "ACTIVE"})


@pytest.mark.parametrize("command", ["describe", "consumers list"])
def test_a_name_of_the_service_is_shown_and_not_obeyed(run: RunCommand, command: str) -> None:
    name, arn = (
        "[red]\x1b]0;x\x07",
        f"arn:aws:kinesis:us-east-1:123456789012:stream/{ORDERS}/consumer/x:1",
    )
    consumer = {"ConsumerName": name, "ConsumerARN": arn, "ConsumerStatus": "ACTIVE"}
    body = json.dumps({"Consumers": [{**consumer, "ConsumerCreationTimestamp": 1.0}]})
    run.server.add_fault(Fault("ListStreamConsumers", "body", message=body))
    output = run(command).output
    assert "[red]\\u001b]0;x" in output
    assert output.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("arguments", "mode", "shards"), [((), "ON_DEMAND", 4), (("--shards", "3"), "PROVISIONED", 3)]
)
def test_a_stream_is_created_and_awaited(
    run: RunCommand, arguments: tuple[str, ...], mode: str, shards: int
) -> None:
    result = run("create", "returns", *arguments)
    assert (result.exit_code, result.stderr) == (0, "returns is ACTIVE.\n")
    (listed,) = [
        one
        for one in map(json.loads, run("list", "--json").stdout.splitlines())
        if one["name"] == "returns"
    ]
    assert listed["mode"] == mode
    assert len(run("shards", "returns", "--json").stdout.splitlines()) == shards


def test_what_exists_is_not_created_again(run: RunCommand) -> None:
    result = run("create", ORDERS)
    assert result.exit_code == 1
    assert "a stream of this name exists already" in result.stderr
    assert run("create", "no name").exit_code == 2


def test_no_stream_is_said_with_what_makes_one(
    local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {**connection.LOCAL, "aws.endpoint": local_kinesis.endpoint_url}
    monkeypatch.setattr(connection, "LOCAL", here)
    result = run_command("list", "--local")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "kinesis-publishers create NAME" in result.stderr


def test_the_local_server_needs_neither_a_file_nor_credentials(local: RunCommand) -> None:
    assert run_command("list", "--local").stdout.split()[5] == ORDERS
    put = run_command("put", "--local", "--stream", ORDERS, "a record")
    assert put.stderr == "Wrote 1 record to orders.\n"
    arguments = ("--start", "TRIM_HORIZON", "--end", "LATEST")
    assert "a record" in run_command("tail", ORDERS, "--local", *arguments).stdout
    # What is said with it takes precedence.
    local.server.add_fault(Fault("*", "error", code="AccessDeniedException"))
    assert run_command("list", "--local", "--endpoint", "http://127.0.0.1:1").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("put", "orders", "hello"), "Error: --stream is required: set it to names or ARNs"),
        (("tail",), "Error: --stream is required: set it to names or ARNs of streams"),
        (("tail", "or ders"), "Error: --stream: 'or ders' is neither the name of a stream"),
        (("shards", "orders"), "Error: no region: set --region (as eu-west-1)"),
        (("list",), "Error: no region: set --region (as eu-west-1)"),
        (("shards", "orders", "--endpoint", "here"), "Error: --endpoint: got 'here', expected"),
        (
            ("shards", "orders", "-P", "aws.regionn=x"),
            "Error: aws.regionn: unknown option; did you",
        ),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("local")
def test_errors_name_the_options_of_the_command(arguments: tuple[str, ...], message: str) -> None:
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(message)
