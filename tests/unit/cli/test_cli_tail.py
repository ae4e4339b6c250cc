"""``tail``: what it reads, how it prints it, when it ends."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.cli.shared.event_loop import OutputPipe
from tests.unit.cli.cli_support import ORDERS, run_command

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.unit.cli.cli_support import RunCommand

_TO_THE_TIP = ("--start", "trim_horizon", "--end", "LATEST")


def records(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def put(run: RunCommand, *payloads: bytes) -> None:
    run.server.put_many(ORDERS, [(f"key-{index}", one) for index, one in enumerate(payloads)])


def test_everything_up_to_the_tip_is_printed_as_json(run: RunCommand) -> None:
    payloads = [b"%d" % number for number in range(20)]
    put(run, *payloads)
    found = records(run("tail", *_TO_THE_TIP, "--json", "--data", "text"))
    assert sorted(str(one["data"]) for one in found) == sorted(map(bytes.decode, payloads))
    assert {one["shard_id"] for one in found} == set(run.server.records(ORDERS))


def test_children_of_closed_shards_are_read_up_to_the_tip(run: RunCommand) -> None:
    put(run, b"before")
    run.server.reshard(ORDERS, 3)
    put(run, b"after")
    found = records(run("tail", *_TO_THE_TIP, "--json", "--data", "text"))
    assert [one["data"] for one in found] == ["before", "after"]


def test_only_the_shards_that_are_named_are_read(run: RunCommand) -> None:
    run.server.create_stream("two-shards", 2)
    run.server.put_many("two-shards", [(f"key-{n}", b"%d" % n) for n in range(20)])
    first, second = sorted(run.server.records("two-shards"))
    stream = ("--stream", "two-shards")
    for name in (second, f"two-shards:{second}", "1"):
        found = records(run("tail", *_TO_THE_TIP, *stream, "--shard", name, "--json"))
        assert {one["shard_id"] for one in found} == {second}
        assert len(found) == len(run.server.records("two-shards")[second])
    result = run("tail", *_TO_THE_TIP, *stream, "--shard", "x")
    assert result.exit_code == 1
    assert "two-shards:x, which is not there" in result.stderr
    assert f"two-shards:{first}, two-shards:{second}" in result.stderr


def test_an_empty_stream_has_its_tip_at_once(run: RunCommand) -> None:
    result = run("tail", *_TO_THE_TIP)
    assert (result.exit_code, result.stdout) == (0, "")


def test_where_there_is_no_terminal_a_record_is_a_line(run: RunCommand) -> None:
    put(run, b"a\tb")
    (line,) = run("tail", *_TO_THE_TIP).stdout.splitlines()
    shard_id = next(key for key, stored in run.server.records(ORDERS).items() if stored)
    assert line.split("  ", 1)[1] == rf"orders/{shard_id}  key-0  a\tb"


def test_it_ends_after_exactly_the_records_that_were_asked_for(run: RunCommand) -> None:
    put(run, *[b"x"] * 50)
    result = run("tail", "--start", "TRIM_HORIZON", "--json", "-n", "7")
    assert len(records(result)) == 7


def test_an_instant_in_the_future_or_latest_shows_nothing_of_before(run: RunCommand) -> None:
    put(run, b"old")
    for begin in ("LATEST", "-0s"):
        assert run("tail", "--start", begin, "--end", "LATEST").stdout == ""


@pytest.mark.parametrize("begin", ["-10m", "-999999d", "2020-01-01T00:00:00Z", "1577836800"])
def test_it_begins_at_an_instant(run: RunCommand, begin: str) -> None:
    put(run, b"recent")
    assert "recent" in run("tail", "--start", begin, "--end", "LATEST").stdout


@pytest.mark.parametrize("end", ["-10m", "2020-01-01T00:00:00Z", "AT_TIMESTAMP -10m"])
def test_it_ends_before_an_instant(run: RunCommand, end: str) -> None:
    put(run, b"recent")
    assert run("tail", "--end", end).stdout == ""


def test_a_position_on_the_command_line_goes_before_those_of_single_shards(
    run: RunCommand,
) -> None:
    put(run, b"old")
    with run.path.open("a") as file:
        positions = {shard: {"iteratorType": "LATEST"} for shard in run.server.records(ORDERS)}
        file.write(f"kinesis.stream.initpos.shards={json.dumps(positions)}\n")
    assert run("tail", "--start", "LATEST", "--end", "LATEST").stdout == ""
    assert "old" in run("tail", *_TO_THE_TIP).stdout


def test_several_streams_are_read_together(run: RunCommand) -> None:
    run.server.create_stream("returns")
    run.server.put_many("returns", [("k", b"r")])
    put(run, b"o")
    result = run("tail", "--stream", ORDERS, "--stream", "returns", *_TO_THE_TIP, "--json")
    assert sorted(str(one["stream_name"]) for one in records(result)) == [ORDERS, "returns"]


def test_output_that_is_no_longer_read_is_an_end_like_any_other(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: OutputPipe, data: bytes) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(OutputPipe, "write", broken)
    put(run, b"a", b"b")
    result = run("tail", "--start", "TRIM_HORIZON")
    assert (result.exit_code, result.stderr) == (0, "")


def test_all_that_is_wrong_with_the_properties_is_said_before_any_call(run: RunCommand) -> None:
    result = run("tail", "-P", "kinesis.stream.initpos=NOW", "-P", "aws.regions=x")
    assert result.exit_code == 1
    assert "kinesis.stream.initpos: got 'NOW'" in result.stderr
    assert "aws.regions: unknown option; did you mean aws.region?" in result.stderr
    assert run.server.calls() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--json", "--lines"), "Use only one of --json, --lines"),
        (("--data", "text"), "add --json"),
        (("--start", "-1h", "--end", "-2h"), "--start (1:00:00 ago) is later than --end (2:00:00"),
        (("--end", "soon"), "--end: got 'soon', expected one of LATEST, AT_TIMESTAMP, or a time"),
        (("--start=-1x",), "--start: '-1x' is not a timestamp"),
        (("--max-records", "0"), "0 is not in the range"),
        (("--start", "NOW"), "--start: got 'NOW', expected one of LATEST, TRIM_HORIZON"),
        (("-P", "novalue"), "expected KEY=VALUE"),
        (("--config", "/nowhere.properties"), "does not exist"),
    ],
)
def test_wrong_usage_is_exit_code_two(options: tuple[str, ...], message: str) -> None:
    result = run_command("tail", "--stream", ORDERS, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_property_without_a_key_is_not_repeated() -> None:
    assert "s3cret" not in run_command("tail", "-P", "s3cret").output


def configure(run: RunCommand, *lines: str) -> None:
    with run.path.open("a") as file:
        file.write("\n".join((*lines, "")))


def test_the_checkpoints_of_an_application_are_left_alone(run: RunCommand, tmp_path: Path) -> None:
    store = tmp_path / "checkpoints.sqlite3"
    configure(
        run,
        "kinesis.checkpoint.application=ledger",
        f"kinesis.checkpoint.sqlite.path={store}",
        "kinesis.checkpoint.store.maxretries=1",
    )
    put(run, b"seen")
    result = run("tail", *_TO_THE_TIP)
    assert "seen" in result.stdout
    assert "kinesis.checkpoint.application is left out" in result.stderr
    assert not store.exists()


_EFO = ("kinesis.stream.recordpublisher=EFO", "kinesis.stream.efo.consumername=ledger")


def test_the_consumer_of_an_application_is_left_alone(run: RunCommand) -> None:
    configure(run, *_EFO)
    put(run, b"seen")
    result = run("tail", *_TO_THE_TIP)
    assert "seen" in result.stdout
    assert "kinesis.stream.recordpublisher=EFO is left out: tail polls" in result.stderr
    called = {call.operation for call in run.server.calls()}
    assert not called & {"RegisterStreamConsumer", "SubscribeToShard", "DeregisterStreamConsumer"}


def test_a_file_may_be_a_pipe(run: RunCommand) -> None:
    put(run, b"seen")
    ours, theirs = os.pipe()
    os.write(theirs, run.path.read_bytes())
    os.close(theirs)
    result = run_command("tail", "--config", f"/dev/fd/{ours}", *_TO_THE_TIP)
    os.close(ours)
    assert "seen" in result.stdout
