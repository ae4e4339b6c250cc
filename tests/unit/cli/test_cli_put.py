"""``put``: what it writes, what it repeats, what it says when records were not written."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pybase64
import pytest

from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.cli.cli_support import ORDERS, run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.cli_support import RunCommand

_FIRST, _SECOND = "shardId-000000000000", "shardId-000000000001"


def stored(run: RunCommand, shard_id: str | None = None) -> list[bytes]:
    found = run.server.records(ORDERS)
    return [
        record.data for name, shard in found.items() for record in shard if shard_id in (None, name)
    ]


def test_each_argument_is_a_record_and_its_place_is_printed(run: RunCommand) -> None:
    result = run("put", "-k", "same", "one", "zwei 🎉", "")
    assert result.exit_code == 0
    assert stored(run) == [b"one", "zwei 🎉".encode(), b""]
    lines = [line.split() for line in result.stdout.splitlines()]
    numbers = [
        one.sequence_number for shard in run.server.records(ORDERS).values() for one in shard
    ]
    assert [line[1] for line in lines] == numbers
    assert {line[2] for line in lines} == {"same"}
    assert result.stderr == "Wrote 3 records to orders.\n"


def test_each_line_of_standard_input_is_a_record(run: RunCommand) -> None:
    result = run("put", "-k", "k", "-q", stdin=b"a\n\nb\xff")
    assert (result.exit_code, result.stdout) == (0, "")
    assert stored(run) == [b"a", b"", b"b\xff"]


def test_a_file_has_a_record_per_line_or_is_one(run: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"1\n2\n")
    run("put", "-k", "k", "--file", str(file))
    run("put", "-k", "k", "--file", str(file), "--whole")
    assert stored(run) == [b"1", b"2", b"1\n2\n"]


def test_thousands_of_lines_keep_their_order(run: RunCommand) -> None:
    lines = [b"%d" % number for number in range(1200)]
    assert run("put", "-k", "k", "-q", stdin=b"\n".join((*lines, b""))).exit_code == 0
    assert stored(run) == lines


def test_without_a_partition_key_each_record_has_one_of_its_own(run: RunCommand) -> None:
    result = run("put", "--json", *"abcdefghijkl")
    keys = {json.loads(line)["partition_key"] for line in result.stdout.splitlines()}
    assert len(keys) == 12
    assert [json.loads(line)["number"] for line in result.stdout.splitlines()] == list(range(1, 13))


def test_a_stream_that_distributes_records_itself_gets_no_key_that_nobody_gave(
    run: RunCommand,
) -> None:
    run.server.distribute(ORDERS)
    result = run("put", "a", "b")
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["-", "-"]
    assert json.loads(run("put", "--json", "c").stdout)["partition_key"] is None
    lines = run("tail", "--json", "--start", "TRIM_HORIZON", "-n", "3").stdout.splitlines()
    assert [json.loads(line)["partition_key"] for line in lines] == [None] * 3


def test_the_explicit_hash_key_chooses_the_shard(run: RunCommand) -> None:
    run("put", "--explicit-hash-key", str(2**128 - 1), "upper")
    run("put", "--explicit-hash-key", "0", "lower")
    assert (stored(run, _FIRST), stored(run, _SECOND)) == ([b"lower"], [b"upper"])


def test_what_a_shard_refuses_is_written_again_before_what_follows(run: RunCommand) -> None:
    run.server.add_fault(Fault("PutRecords", "throttle", shard_id=_FIRST, times=2))
    lines = b"\n".join(b"%d" % number for number in range(1000))
    result = run("put", "-q", "-P", "kinesis.producer.ratelimit=10000", stdin=lines)
    assert result.exit_code == 0, result.stderr
    # The first half of the records came with the first call, and is there before the second half.
    halves = [int(data) // 500 for data in stored(run, _FIRST)]
    assert halves == sorted(halves)
    assert len(stored(run)) == 1000


def test_a_record_that_is_never_accepted_is_an_error_that_names_it(run: RunCommand) -> None:
    run.server.add_fault(Fault("PutRecords", "throttle", shard_id=_SECOND, times=None))
    ttl = ("-P", "kinesis.producer.recordttl=300ms")
    result = run("put", "--explicit-hash-key", str(2**127), *ttl, "a", "b")
    assert result.exit_code == 1
    assert "2 of 2 records were not written" in result.stderr
    assert "the first is number 1: " in result.stderr
    assert "kinesis.producer.recordttlmillis" in result.stderr
    assert "ProvisionedThroughputExceededException" in result.stderr
    assert "Wrote" not in result.stderr


def test_records_that_were_written_are_listed_beside_one_that_was_not(run: RunCommand) -> None:
    run.server.add_fault(Fault("PutRecords", "throttle", shard_id=_SECOND, times=None))
    keys = {_FIRST: "a", _SECOND: "b"}  # by their MD5
    lines = "".join(f"{key},{shard}\n" for shard, key in keys.items())
    options = ("--format", "csv", "--key-column", "key", "-P", "kinesis.producer.recordttl=300ms")
    result = run("put", *options, "--json", stdin=f"key,shard\n{lines}")
    assert result.exit_code == 1
    listed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["number"], one["partition_key"]) for one in listed] == [(1, "a")]
    assert "1 of 2 records were not written, or not for certain; the first is number 2" in (
        result.stderr
    )


def test_a_refusal_for_good_is_not_repeated(run: RunCommand) -> None:
    fault = Fault("PutRecords", "error", code="KMSAccessDeniedException", message="no key")
    run.server.add_fault(fault)
    result = run("put", "a")
    assert result.exit_code == 1
    assert "KMSAccessDeniedException" in result.stderr
    assert len(run.server.calls("PutRecords")) == 1


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_record_that_is_too_large_is_not_sent(
    run: RunCommand, tmp_path: Path, is_whole: bool
) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"before\n" + bytes(10 * 1024 * 1024 + 1) + b"\nafter\n")
    result = run("put", "--file", str(file), *(["--whole"] if is_whole else []))
    assert result.exit_code == 1
    number = 1 if is_whole else 2
    assert f"Record {number} cannot be put: the record with the partition key" in result.stderr
    assert "and orders takes" in result.stderr
    assert stored(run) == ([] if is_whole else [b"before"])


def test_what_tail_prints_is_what_was_put(run: RunCommand) -> None:
    data = bytes(range(256))
    run("put", "--whole", stdin=data)
    (line,) = run(
        "tail", "--start", "TRIM_HORIZON", "--end", "LATEST", "--json"
    ).stdout.splitlines()
    assert pybase64.b64decode(json.loads(line)["data"]) == data


def test_aggregates_arrive_in_fewer_records(run: RunCommand) -> None:
    result = run("put", "--aggregate", "-k", "k", "--json", stdin=b"a\nb\nc\n")
    assert result.exit_code == 0
    assert len(stored(run)) == 1
    assert len({json.loads(line)["sequence_number"] for line in result.stdout.splitlines()}) == 1
    tailed = run("tail", "--start", "TRIM_HORIZON", "--end", "LATEST", "--json", "--data", "text")
    assert [json.loads(line)["data"] for line in tailed.stdout.splitlines()] == ["a", "b", "c"]


def test_a_rate_is_kept(run: RunCommand) -> None:
    started = time.monotonic()
    assert run("put", "-q", "--rate", "50", stdin=b"x\n" * 26).exit_code == 0
    # The last of six portions of five begins after half a second.
    assert time.monotonic() - started >= 0.5
    assert len(stored(run)) == 26


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partition-key", ""), "expected 1 to 256 characters"),
        (("--partition-key", "k" * 257), "expected 1 to 256 characters"),
        (("--explicit-hash-key", str(2**128)), "expected a decimal number from 0 to 2^128 - 1"),
        (("--explicit-hash-key=-1",), "expected a decimal number"),
        (("--whole",), "leave out --file, --format and --whole"),
        (("--quiet", "--json"), "Use --json or --quiet, not both"),
        (("--file", "/nowhere"), "does not exist"),
        (("--format", "csv"), "leave out --file, --format and --whole"),
        (("--key-column", "id"), "need a table"),
        (("--rate", "0"), "x>0"),
    ],
)
def test_wrong_usage_is_exit_code_two(options: tuple[str, ...], message: str) -> None:
    result = run_command("put", "--stream", ORDERS, *options, "data")
    assert result.exit_code == 2
    assert message in result.stderr


def test_it_writes_to_one_stream_only() -> None:
    result = run_command("put", "--region", "us-east-1", "--stream", "a", "--stream", "b", "data")
    assert result.exit_code == 2
    assert "there are a, b" in result.stderr
