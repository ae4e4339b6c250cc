"""``shards``: the lineage of streams that exist."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.cli_support import ORDERS

if TYPE_CHECKING:
    from tests.unit.cli.cli_support import RunCommand


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
