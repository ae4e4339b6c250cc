"""``leases list`` and ``leases release``: who reads what, and taking it away."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.model import HashRange, Lease
from tests.servers import free_port
from tests.unit.cli.lease_support import (
    BEGINNING,
    WITH_LEASES,
    Application,
    after,
    shard_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.cli_support import RunCommand

_INSTANT = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)


def test_the_list_has_owner_position_parents_throughput_and_version(
    application: Application,
) -> None:
    leased = Lease(owner="b", leaving="a", parents=(shard_name(0),), bytes_per_second=2048)
    inside = ShardProgress(position=StartingPosition.at(SequenceNumber("495", 7)))
    application.save(
        application.checkpoint(0, BEGINNING.ended(), Lease(children=(shard_name(1),))),
        application.checkpoint(1, inside, leased),
        application.checkpoint("*"),
    )
    lines = application("list").stdout.splitlines()
    assert [line.split() for line in lines[2:]] == [
        [shard_name(0), "-", "-", "1", "SHARD_END"],
        [shard_name(1), "a", "->", "b", "-", "2.0", "KiB", shard_name(0), "1", "495:7"],
    ]


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("list", 0),
        ("list --json", 0),
        ("release --all --yes", 0),
        ("reset --all --to LATEST --force --yes", 0),
        ("reset --all --to LATEST --dry-run", 1),
    ],
)
def test_what_another_has_written_is_shown_and_not_obeyed(
    application: Application, command: str, exit_code: int
) -> None:
    lease = Lease(owner="[/b][red]:smile:\x1b]0;owned\x07\x9b31m\u202egnp.exe")
    application.save(application.checkpoint(0, lease=lease))
    with application.worker(0):
        result = application(*command.split(), *WITH_LEASES)
    assert result.exit_code == exit_code
    assert r"[/b][red]:smile:\u001b]0;owned\u0007\u009b31m\u202egnp.exe" in result.output
    assert result.output.replace("\n", "").isprintable()


def test_the_list_as_json_has_every_field(application: Application) -> None:
    progress = ShardProgress(position=StartingPosition.at_timestamp(_INSTANT), as_of=_INSTANT)
    lease = Lease(
        owner="a", children=("c", "d"), hash_range=HashRange(0, 9), watermark=_INSTANT, is_idle=True
    )
    application.save(application.checkpoint(0, progress, lease))
    (fields,) = map(json.loads, application("list", "--json").stdout.splitlines())
    writer = fields.pop("writer")
    assert writer == application.rows()[application.key(0)].version.writer
    assert fields == {
        "stream_name": "orders",
        "stream_arn": application.identity.arn,
        "stream_created_at": application.identity.created_at.isoformat(timespec="microseconds"),
        "shard_id": shard_name(0),
        "owner": "a",
        "leaving": None,
        "switches": 0,
        "settle_seconds": 0,
        "consumer_arn": None,
        "position": "AT_TIMESTAMP",
        "sequence_number": None,
        "sub_sequence_number": None,
        "timestamp": "2026-11-22T01:02:03.000000+00:00",
        "as_of": "2026-11-22T01:02:03.000000+00:00",
        "is_ended": False,
        "parents": [],
        "children": ["c", "d"],
        "bytes_per_second": None,
        "version": 1,
    }


def test_a_record_that_comes_next_looks_different_from_one_that_was_processed(
    application: Application,
) -> None:
    at = ShardProgress(position=StartingPosition.at(SequenceNumber("7")))
    application.save(application.checkpoint(0, at), application.checkpoint(1, after(7)))
    lines = application("list").stdout.splitlines()[2:]
    assert [line.split()[4:] for line in lines] == [["at", "7"], ["7"]]


def test_without_rows_it_says_so(application: Application) -> None:
    result = application("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "kinesis.checkpoint.store = sqlite has no rows of the application" in result.stderr
    assert "for orders: no worker has started yet" in result.stderr


def test_rows_of_streams_that_are_not_named_are_left_out(application: Application) -> None:
    application.save(application.checkpoint(0))
    application.server.create_stream("others")
    assert application("list", "--stream", "others").stdout == ""


def test_the_list_needs_no_call_to_kinesis(application: Application) -> None:
    application.save(application.checkpoint(0))
    before = len(application.server.calls())
    assert shard_name(0) in application("list").stdout
    assert len(application.server.calls()) == before


def test_the_name_of_the_application_may_be_an_option(application: Application) -> None:
    application.save(application.checkpoint(0))
    assert application("list", "--application", "reports").stdout == ""
    assert shard_name(0) in application("list", "--application", "billing").stdout


def test_without_an_application_it_says_how_to_name_one(run: RunCommand) -> None:
    result = run("leases list")
    assert result.exit_code == 2
    assert "--application" in result.stderr


def test_the_store_of_a_process_has_nothing_to_show(run: RunCommand) -> None:
    memory = ("-P", "kinesis.checkpoint.store=memory")
    result = run("leases list", "--application", "billing", *memory)
    assert result.exit_code == 2
    assert "ends with its process" in result.stderr


def test_listing_creates_no_table(run: RunCommand, dynamodb_url: str) -> None:
    pairs = {
        "kinesis.checkpoint.store": "dynamodb",
        "kinesis.checkpoint.dynamodb.table": "not-there",
        "kinesis.checkpoint.dynamodb.endpoint": dynamodb_url,
    }
    options = [part for key, value in pairs.items() for part in ("-P", f"{key}={value}")]
    result = run("leases list", "--application", "billing", *options)
    assert result.exit_code == 1
    assert "not-there does not exist" in result.stderr


@pytest.mark.parametrize(
    ("store", "address"),
    [
        ("redis", "checkpoint.redis.url=redis://127.0.0.1:{}"),
        ("sql", "checkpoint.sql.url=postgresql://user:password@127.0.0.1:{}/database"),
        ("dynamodb", "checkpoint.dynamodb.endpoint=http://127.0.0.1:{}"),
    ],
)
def test_a_store_that_cannot_be_reached_is_said_with_what_to_do(
    run: RunCommand, store: str, address: str
) -> None:
    pairs = (f"checkpoint.store={store}", address.format(port := free_port()))
    options = [part for pair in pairs for part in ("-P", f"kinesis.{pair}")]
    result = run("leases list", "--application", "billing", *options)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert f"127.0.0.1:{port}" in error
    assert error.count("check ") == 1
    assert "set kinesis.checkpoint.store.maxretries to wait longer" in error


def test_releasing_takes_a_shard_from_its_owner_and_from_the_next_one(
    application: Application,
) -> None:
    lease = Lease(owner="b", leaving="a", parents=("p",), switches=3)
    application.save(application.checkpoint(0, after(5), lease), application.checkpoint(1))
    result = application("release", shard_name(0), "--yes")
    assert (result.exit_code, result.stderr) == (0, "Released: 1.\n")
    assert application.row(0) == application.checkpoint(
        0, after(5), Lease(parents=("p",), switches=3)
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (["--all"], [None, None, None]),
        ([shard_name(2)], ["a", "b", None]),
        ([shard_name(0), shard_name(1)], [None, None, "b"]),
    ],
)
def test_a_selection_means_exactly_its_shards(
    application: Application, selection: list[str], expected: list[str | None]
) -> None:
    application.server.reshard("orders", 3)
    leases = (Lease(owner="a"), Lease(owner="b", leaving="a"), Lease(owner="b"))
    application.save(*(application.checkpoint(i, lease=one) for i, one in enumerate(leases)))
    assert application("release", *selection, "--yes").exit_code == 0
    owners = [application.row(i).lease for i in range(3)]
    assert [one and one.owner for one in owners] == expected


@pytest.mark.parametrize("selection", [[], ["--all", shard_name(0)]])
def test_no_selection_and_two_are_wrong_usage(
    application: Application, selection: list[str]
) -> None:
    result = application("release", *selection)
    assert result.exit_code == 2
    assert "name each SHARD, or use --all" in result.stderr


def test_a_shard_without_a_row_is_an_error_that_names_those_with_one(
    application: Application,
) -> None:
    application.save(application.checkpoint(0))
    result = application("release", "shardId-7", "--yes")
    assert result.exit_code == 2
    assert f"shardId-7 has no row; these shards have one: {shard_name(0)}." in result.stderr


def test_a_shard_id_of_two_streams_has_to_say_which(application: Application) -> None:
    application.save(application.checkpoint(0, lease=Lease(owner="a")))
    application.server.create_stream("others")
    moved = application.key(0).stream_arn.replace("orders", "others")
    other = application.checkpoint(0, lease=Lease(owner="a"))
    application.save(evolve(other, shard=ShardKey(moved, shard_name(0))))
    both = ("--stream", "orders", "--stream", "others")
    result = application("release", shard_name(0), *both, "--yes")
    assert result.exit_code == 2
    assert f"Several streams have a shard {shard_name(0)}: choose one by --stream" in result.stderr
    assert application("release", shard_name(0), "--yes").exit_code == 0
    rows = application.rows()
    assert rows[application.key(0)].checkpoint.lease == Lease()
    assert rows[ShardKey(moved, shard_name(0))].checkpoint.lease == Lease(owner="a")


def test_what_nobody_owns_needs_no_release(application: Application) -> None:
    application.save(application.checkpoint(0), application.checkpoint(1, lease=Lease()))
    result = application("release", "--all")
    assert (result.exit_code, result.stderr) == (0, "Nothing would change: nothing to do.\n")


def test_releasing_asks_first(application: Application) -> None:
    application.save(application.checkpoint(0, lease=Lease(owner="host/1")))
    refused = application("release", "--all", stdin="n\n")
    assert refused.exit_code == 1
    assert "host/1" in refused.stdout
    assert "nothing was changed. In scripts, use --yes" in refused.stderr
    assert application.row(0).lease == Lease(owner="host/1")
    assert application("release", "--all", stdin="y\n").exit_code == 0
    assert application.row(0).lease == Lease()


def test_a_row_that_its_owner_renews_in_between_is_released_with_its_new_position(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    lease = Lease(owner="a")
    application.save(*(application.checkpoint(number, after(1), lease) for number in (0, 1)))
    renewed = application.checkpoint(0, after(2), lease)
    before_writes.append(lambda: application.save(renewed))
    result = application("release", "--all", "--yes")
    assert (result.exit_code, result.stderr) == (0, "Released: 2.\n")
    assert application.row(0) == application.checkpoint(0, after(2), Lease())


def test_a_shard_that_was_released_and_taken_is_not_released_again(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    application.save(*(application.checkpoint(one, lease=Lease(owner="a")) for one in (0, 1)))
    # The first write is refused for one of them: what follows is about that one only.

    def take_and_renew() -> None:
        application.own(1, "b")
        application.own(0, "a")

    before_writes += [lambda: application.own(0, "a"), take_and_renew]
    assert application("release", "--all", "--yes").exit_code == 0
    assert [application.row(number).lease for number in (0, 1)] == [Lease(), Lease(owner="b")]


def test_a_row_that_changes_again_and_again_is_an_error(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    application.save(application.checkpoint(0, lease=Lease(owner="a")))
    before_writes += [lambda: application.own(0, "a")] * 10
    result = application("release", "--all", "--yes")
    assert result.exit_code == 1
    assert "another reader has written it" in result.stderr
    assert application.row(0).lease == Lease(owner="a")
