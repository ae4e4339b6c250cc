"""``shards``: the lineage of streams, as a tree and in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesis_publishers import Shard
from kinesis_publishers.cli.shared.console import print_rich
from kinesis_publishers.cli.streams import lineage_tree
from tests.unit.cli.cli_support import ORDERS

if TYPE_CHECKING:
    from tests.unit.cli.cli_support import RunCommand

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_HALF = 2**127


def test_it_shows_which_shards_are_open_and_where_they_come_from(run: RunCommand) -> None:
    run.server.reshard(ORDERS, 1)
    result = run("shards")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "orders: 1 open, 2 closed",
        "├── shardId-000000000000  closed  50 %",
        "│   └── shardId-000000000002  open  100 %  and shardId-000000000001",
        "└── shardId-000000000001  closed  50 %",
    ]


def test_as_json_each_shard_is_an_object(run: RunCommand) -> None:
    run.server.reshard(ORDERS, 1)
    shards = [json.loads(line) for line in run("shards", "--json").stdout.splitlines()]
    assert [one["is_open"] for one in shards] == [False, False, True]
    assert shards[2]["parent_shard_id"] == shards[0]["shard_id"]
    assert shards[2]["adjacent_parent_shard_id"] == shards[1]["shard_id"]
    assert shards[0]["ending_hash_key"] == str(2**127 - 1)
    assert shards[0]["hash_key_share"] == 0.5
    assert shards[0]["adjacent_parent_shard_id"] is None


def test_several_streams_are_shown_one_after_the_other(run: RunCommand) -> None:
    run.server.create_stream("returns")
    result = run("shards", "--stream", "returns", "--stream", ORDERS)
    assert [line for line in result.stdout.splitlines() if ":" in line] == [
        "returns: 1 open, 0 closed",
        "orders: 2 open, 0 closed",
    ]


def test_a_service_that_is_down_is_an_error_after_few_attempts(
    run: RunCommand, unused_tcp_port: int
) -> None:
    quick = ("-P", "kinesis.stream.describe.backoff.max=1ms")
    result = run("shards", "--endpoint", f"http://127.0.0.1:{unused_tcp_port}", *quick)
    assert result.exit_code == 1
    assert "DescribeStreamSummary failed 4 times" in result.stderr


@pytest.mark.usefixtures("run")
def test_colour_is_for_terminals(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in run("shards").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("shards").stdout


def shard(number: int, *parents: int, is_closed: bool = False, upper: bool = False) -> Shard:
    ids = [f"shardId-{parent:012}" for parent in parents] + [None, None]
    return Shard(
        stream_arn=_ARN,
        shard_id=f"shardId-{number:012}",
        parent_shard_id=ids[0],
        adjacent_parent_shard_id=ids[1],
        starting_hash_key=str(_HALF if upper else 0),
        ending_hash_key=str(2 * _HALF - 1 if upper else _HALF - 1),
        ending_sequence_number="9" if is_closed else None,
    )


def drawn(*shards: Shard) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(lineage_tree("orders", shards))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_parent_that_has_left_the_retention_is_named() -> None:
    assert drawn(shard(2, 0), shard(3, 1, 2)) == [
        "orders: 2 open, 0 closed",
        "└── shardId-000000000002  open  50 %  from shardId-000000000000, no longer listed",
        "    └── shardId-000000000003  open  50 %  and shardId-000000000001, no longer listed",
    ]


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_terminal_gets_every_generation_in_full(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": terminal}.items():
        monkeypatch.setenv(name, value)
    chain = [shard(0)] + [shard(number, number - 1) for number in range(1, 300)]
    print_rich(lineage_tree("orders", chain), is_cut=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 301
    labels = [f"shardId-{number:012}" for number in range(300)]
    assert all(label in line for label, line in zip(labels, lines[1:], strict=True))
    assert lines[-1].endswith("50 %")


def test_more_than_a_thousand_generations_are_no_error() -> None:
    chain = [shard(0)] + [shard(number, number - 1) for number in range(1, 1200)]
    assert lineage_tree("orders", chain).children[0].label is not None
