"""``config``: what can be configured, and what is wrong with a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers.model.native import find_native
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.cli.cli_support import ORDERS, run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.cli_support import RunCommand

_GOOD = """\
kinesis.streams = orders
aws.region = eu-west-1
aws.credentials.provider.basic.accesskeyid = AKIASECRET
aws.credentials.provider.basic.secretkey = hunter2
flink.shard.getrecords.intervalmillis = 1s
kinesis.stream.initpos.shards = {"shardId-000000000000": {"iteratorType": "TRIM_HORIZON"}}
"""


def values(text: str, *options: str) -> dict[str, tuple[str | None, str | None, str]]:
    result = run_command("config", "check", "-", "--json", *options, stdin=text)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["values"]
    return {row["key"]: (row["value"], row["unit"], row["source"]) for row in rows}


def warnings(text: str) -> list[str]:
    result = run_command("config", "check", "-", stdin=text)
    assert result.exit_code == 0, result.output
    return [line for line in result.stderr.splitlines() if line.startswith("Warning")]


def test_every_option_is_shown_with_its_value_and_unit() -> None:
    found = values(_GOOD)
    assert found["kinesis.shard.getrecords.intervalmillis"] == ("1000", "ms", "given")
    assert found["kinesis.stream.initpos"] == ("LATEST", None, "default")
    assert found["kinesis.stream.initpos.timestamp"] == (None, None, "default")
    assert found["kinesis.failondataloss"] == ("true", None, "default")
    assert found["kinesis.stream.initpos.shards"][0] == _GOOD.splitlines()[-1].partition(" = ")[2]
    single = {
        one.full_key for one in all_declarations() if "<" not in one.key and "[" not in one.key
    }
    assert single == set(found)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_secrets_are_masked(options: tuple[str, ...]) -> None:
    result = run_command("config", "check", "-", *options, stdin=_GOOD)
    assert "***" in result.stdout
    assert "AKIASECRET" not in result.output
    assert "hunter2" not in result.output


def test_members_of_families_and_nested_credentials_are_shown() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/reports:1700000000"
    nested = "aws.credentials.provider.role.provider.role.arn"
    role = "arn:aws:iam::123456789012:role/reader"
    found = values(
        "kinesis.streams=orders\nkinesis.stream.recordpublisher=EFO\n"
        f"kinesis.stream.efo.registration=NONE\nkinesis.stream.efo.consumerarn.orders={arn}\n"
        "aws.credentials.provider=ASSUME_ROLE\n"
        f"aws.credentials.provider.role.arn={role}\n"
        f"aws.credentials.provider.role.provider=ASSUME_ROLE\n{nested}={role}\n"
    )
    assert found["kinesis.stream.efo.consumerarn.orders"] == (arn, None, "given")
    assert found[nested] == (role, None, "given")


def test_what_is_given_stands_first(tmp_path: Path) -> None:
    file = tmp_path / "my.properties"
    file.write_text(_GOOD)
    result = run_command("config", "check", str(file))
    assert result.exit_code == 0
    sources = [line.split()[-1] for line in result.stdout.splitlines()[2:]]
    assert sources == sorted(sources, reverse=True)
    assert result.stderr == f"Records are decoded in {find_native()[1]}.\nNo errors.\n"


def test_all_errors_are_reported_at_once() -> None:
    text = "kinesis.stream=a\naws.region=x y\nkinesis.stream.initpos=NOW\naws.endpoint=ftp://x"
    result = run_command("config", "check", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    for expected in (
        "kinesis.stream: unknown option; did you mean kinesis.streams?",
        "aws.region: got 'x y'",
        "kinesis.stream.initpos: got 'NOW'",
        "aws.endpoint: got 'ftp://x'",
        "kinesis.streams is required",
        "5 errors.",
    ):
        assert expected in result.stderr


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("kinesis.stream.recordpublisher=nowhere.at.all:Factory", "no module 'nowhere'"),
        ("kinesis.checkpoint.application=a\nkinesis.checkpoint.store=redis", "redis"),
        ("kinesis.checkpoint.application=a\nkinesis.checkpoint.sqlite.path=~no-1/x", "without ~"),
        ("kinesis.metrics.sinks=log,nowhere.at.all:Sink", "no module 'nowhere'"),
    ],
)
def test_what_cannot_be_loaded_is_an_error(lines: str, named: str) -> None:
    text = f"{_GOOD}{lines}"
    result = run_command("config", "check", "-", "--json", stdin=text)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["is_valid"] is False
    assert named in found["errors"][0]


def test_streams_may_be_missing_in_a_part_of_a_configuration() -> None:
    assert run_command("config", "check", "-", stdin="aws.region=eu-west-1").exit_code == 1
    assert values("aws.region=eu-west-1", "--partial")["kinesis.streams"][0] is None


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("flink.stream.efo.consumername=x", "kinesis.stream.recordpublisher is POLLING"),
        ("kinesis.shard.subscribetoshard.maxretries=1", "is POLLING"),
        (
            "kinesis.stream.initpos=LATEST\nkinesis.stream.initpos.timestamp=1700000000",
            "kinesis.stream.initpos is LATEST",
        ),
    ],
)
def test_a_key_without_effect_is_a_warning(line: str, warning: str) -> None:
    (found,) = warnings(_GOOD + line)
    key = line.splitlines()[-1].partition("=")[0]
    assert found.startswith(f"Warning: {key} has no effect: ")
    assert warning in found


def test_keys_that_have_an_effect_are_no_warning() -> None:
    fan_out = "kinesis.stream.recordpublisher=EFO\nkinesis.stream.efo.consumername=x\n"
    assert warnings(_GOOD) == []
    assert warnings(_GOOD + fan_out + "kinesis.stream.efo.http-version=1.1") == []
    assert warnings(_GOOD + "kinesis.stream.efo.http-client.max-concurrency=3") == []


def test_the_list_has_every_option() -> None:
    rows = [
        json.loads(line) for line in run_command("config", "list", "--json").stdout.splitlines()
    ]
    assert [row["key"] for row in rows] == [one.full_key for one in all_declarations()]
    plain = run_command("config", "list").stdout
    assert all(one.full_key in plain for one in all_declarations())


def test_the_list_is_filtered_by_a_part_of_the_key_or_the_description() -> None:
    lines = run_command("config", "list", "InitPos.timestamp").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [
        "kinesis.stream.initpos.timestamp",
        "kinesis.stream.initpos.timestamp.format",
    ]
    assert "kinesis.stream.recordpublisher" in run_command("config", "list", "SubscribeTo").stdout


def test_a_filter_that_nothing_passes_is_an_error() -> None:
    result = run_command("config", "list", "xyzzy")
    assert result.exit_code == 1
    assert "No option has 'xyzzy'" in result.stderr


EFO = "kinesis.stream.recordpublisher=EFO\nkinesis.stream.efo.consumername=reports\n"
SPARK = "kinesis.stream.efo.deregister=never\nkinesis.spark.planner=ranges\n"
READ = ["DescribeStreamSummary", "ListShards"]
POLL = ["GetShardIterator", "GetRecords"]
FAN_OUT = ["DescribeStreamConsumer", "ListStreamConsumers", "SubscribeToShard"]
REGISTER = ["RegisterStreamConsumer", "DeregisterStreamConsumer"]


def proved(run: RunCommand, lines: str, wanted: str) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the permissions by verdict."""
    text = run.path.read_text() + lines
    result = run_command("config", "check", "-", "--json", "--permissions", wanted, stdin=text)
    found: dict[str, list[str]] = {"allowed": [], "denied": [], "not provable": []}
    for one in json.loads(result.stdout)["permissions"]:
        assert ORDERS in one["resource"]
        assert bool(one["reason"]) == (one["verdict"] != "allowed")
        found[one["verdict"]].append(one["action"].removeprefix("kinesis:"))
    return result.exit_code, found


@pytest.mark.parametrize(
    ("lines", "wanted", "allowed", "unproven"),
    [
        ("", "both", [*READ, *POLL, "PutRecords"], []),
        ("", "write", [*READ, "PutRecords"], []),
        (EFO, "read", READ + FAN_OUT, REGISTER),
        (EFO + SPARK, "read", READ + POLL + FAN_OUT, REGISTER[:1]),
    ],
)
def test_permissions_are_proved_without_effects(
    run: RunCommand, lines: str, wanted: str, allowed: list[str], unproven: list[str]
) -> None:
    run.server.register_consumer(ORDERS, "reports")
    expected = {"allowed": allowed, "denied": [], "not provable": unproven}
    assert proved(run, lines, wanted) == (0, expected)
    assert not any(run.server.records(ORDERS).values())
    assert run.server.open_subscriptions() == 0


@pytest.mark.parametrize(
    ("fault", "denied", "unproven"),
    [
        (Fault("GetRecords", "error", code="AccessDeniedException"), POLL[1:], []),
        (
            Fault("GetShardIterator", "error", code="AccessDeniedException"),
            POLL[:1],
            POLL[1:],
        ),
        (Fault("PutRecords", "error", code="KMSDisabledException"), ["PutRecords"], []),
        (Fault("ListShards", "throttle"), [], READ[1:]),
    ],
)
def test_a_denied_permission_is_an_error(
    run: RunCommand, fault: Fault, denied: list[str], unproven: list[str]
) -> None:
    run.server.add_fault(fault)
    code, found = proved(run, "", "both")
    assert (code, found["denied"], found["not provable"]) == (bool(denied), denied, unproven)


def test_what_a_consumer_needs_is_not_known_before_it_exists(run: RunCommand) -> None:
    _, found = proved(run, EFO, "read")
    assert found["not provable"] == [*REGISTER, "SubscribeToShard"]
    arn = run.server.register_consumer(ORDERS, "reports")
    given = f"kinesis.stream.efo.registration=NONE\nkinesis.stream.efo.consumerarn.{ORDERS}={arn}"
    assert proved(run, EFO + given, "read")[1]["allowed"] == [*READ, "SubscribeToShard"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GetShardIterator", "body", message='{"ShardIterator": "a"}'),
        Fault("GetShardIterator", "throttle"),
        # An emulator may enforce policies and not know DryRun.
        Fault("GetShardIterator", "error", code="AccessDeniedException"),
    ],
    ids=["unknown", "throttled", "denied"],
)
def test_nothing_is_written_where_a_dry_run_is_not_known(run: RunCommand, fault: Fault) -> None:
    run.server.add_fault(fault)
    assert proved(run, "", "write")[1]["not provable"] == ["PutRecords"]
    assert not run.server.calls("PutRecords")


def test_what_all_calls_need_is_an_error_too(run: RunCommand) -> None:
    run.server.add_fault(Fault("DescribeStreamSummary", "error", code="AccessDeniedException"))
    result = run_command("config", "check", str(run.path), "--permissions", "read", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["is_valid"], found["permissions"]) == (1, False, [])
    assert "allow kinesis:DescribeStreamSummary in the IAM policy" in found["errors"][0]


def test_permissions_stand_below_the_values_and_a_refusal_in_the_errors(run: RunCommand) -> None:
    run.server.add_fault(Fault("PutRecords", "error", code="AccessDeniedException"))
    result = run_command("config", "check", str(run.path), "--permissions", "write")
    verdicts = [line.split()[-1] for line in result.stdout.splitlines()[-3:]]
    assert verdicts == ["allowed", "allowed", "denied"]
    assert f"{ORDERS}: allow kinesis:PutRecords in the IAM policy" in result.stderr
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "1 error.")
    for stream, error in (("nowhere", "Stream nowhere under account"), ("", "kinesis.streams")):
        text = run.path.read_text().replace(f"={ORDERS}", f"={stream}")
        lost = run_command("config", "check", "-", "--partial", "--permissions", "read", stdin=text)
        assert (lost.exit_code, error in lost.stderr) == (1, True)
