"""``leases import FILE``: JSON lines, of ``leases list`` or by hand, become rows."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.model import HashRange, Lease, PositionType
from tests.servers import PASSWORD, USER
from tests.unit.cli.lease_support import BEGINNING, Application, after, shard_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from tests.servers import MariaDbServer, PostgresServer, RedisServer

_NUMBER = "49590338271490256608559692538361571095921575989136588898"
_INSTANT = datetime(2026, 11, 22, 1, 2, 3, 4005, tzinfo=UTC)
_PAGE = Path(__file__).parents[3] / "docs" / "migrate-from-kcl.md"


def take(application: Application, *lines: object, options: tuple[str, ...] = ()) -> Result:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    return application("import", "-", *options, stdin=text)


@pytest.mark.parametrize(
    "progress",
    [
        BEGINNING,
        BEGINNING.ended(),
        after(_NUMBER),
        evolve(after(_NUMBER), as_of=_INSTANT).ended(),
        ShardProgress(position=StartingPosition.at(SequenceNumber(_NUMBER))),
        ShardProgress(position=StartingPosition.at(SequenceNumber(_NUMBER, 0)), as_of=_INSTANT),
        ShardProgress(position=StartingPosition.at(SequenceNumber(_NUMBER, 7)), is_ended=True),
        ShardProgress(position=StartingPosition.at_timestamp(_INSTANT)),
        ShardProgress(position=StartingPosition.at_timestamp(_INSTANT), as_of=_INSTANT),
    ],
    ids=str,
)
def test_what_is_listed_is_imported_as_it_was(
    application: Application, tmp_path: Path, progress: ShardProgress
) -> None:
    lease = Lease(owner="host/1", leaving="host/2", hash_range=HashRange(0, 9), switches=2)
    application.save(
        application.checkpoint(0, progress, lease),
        application.checkpoint(1, after(8)),
        application.checkpoint("*"),
    )
    backup = tmp_path / "backup.jsonl"
    backup.write_text(application("list", "--json").stdout)
    application.path.rename(tmp_path / "former.sqlite3")
    result = application("import", str(backup))
    assert (result.exit_code, result.stderr) == (0, "Imported: 2 shards.\n")
    assert {key: row.checkpoint for key, row in application.rows().items()} == {
        application.key(0): application.checkpoint(0, progress),
        application.key(1): application.checkpoint(1, after(8)),
        application.key("*"): application.checkpoint("*", BEGINNING.ended()),
    }


@pytest.mark.parametrize(
    ("fields", "progress"),
    [
        ({"sequence_number": _NUMBER}, after(_NUMBER)),
        ({"sequence_number": int(_NUMBER)}, after(_NUMBER)),
        (
            {"sequence_number": _NUMBER, "sub_sequence_number": None, "position": None},
            after(_NUMBER),
        ),
        (
            {"sequence_number": _NUMBER, "sub_sequence_number": 3},
            ShardProgress(position=StartingPosition.at(SequenceNumber(_NUMBER, 3))),
        ),
        ({"position": "TRIM_HORIZON", "is_ended": True}, BEGINNING.ended()),
        (
            {"position": "AT_TIMESTAMP", "timestamp": "2026-11-22T02:02:03.004005+01:00"},
            ShardProgress(position=StartingPosition.at_timestamp(_INSTANT)),
        ),
    ],
)
def test_a_line_by_hand_needs_little(
    application: Application, fields: dict[str, Any], progress: ShardProgress
) -> None:
    assert take(application, {"shard_id": shard_name(0), **fields}).exit_code == 0
    assert application.row(0).progress == progress


def test_what_nobody_has_read_yet_can_be_reset(application: Application) -> None:
    assert take(application, {"shard_id": shard_name(0), "sequence_number": "7"}).exit_code == 0
    result = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes")
    assert (result.exit_code, result.stderr) == (0, "Positions set: 1.\n")


def test_the_tip_is_the_instant_of_the_import(application: Application) -> None:
    line = {"shard_id": shard_name(0), "position": "LATEST"}
    assert take(application, line).exit_code == 0
    progress = application.row(0).progress
    assert progress.position.type is PositionType.AT_TIMESTAMP
    assert progress.position.timestamp == progress.as_of


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("shardId-0 495", "Line 2 is no JSON object: b'shardId-0 495'"),
        ("7", "Line 2 is no JSON object: b'7'"),
        ("", "Line 2 is no JSON object: b''"),
        ({"sequence_number": "7"}, "Line 2 cannot be used: 'shard_id' is missing"),
        ({"shard_id": "a"}, "Line 2 cannot be used: 'position' is missing"),
        ({"shard_id": "a", "position": "NOW"}, "'NOW' is not a valid PositionType"),
        ({"shard_id": "a", "position": "AT_TIMESTAMP"}, "AT_TIMESTAMP and None do not go together"),
        (
            {"shard_id": "a", "position": "AT_TIMESTAMP", "timestamp": "2026-11-22T00:00:00"},
            "'2026-11-22T00:00:00' has no time zone",
        ),
        ({"shard_id": "a", "sequence_number": 4.9e55}, "must be a decimal number, not '4.9e+55'"),
        ({"shard_id": "a", "sequence_number": "7", "sub_sequence_number": -1}, "-1 is not a count"),
        (
            {"shard_id": shard_name(0), "sequence_number": "7"},
            f"Line 2 is about orders/{shard_name(0)}, as one before it",
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    application: Application, line: object, message: str
) -> None:
    result = take(application, {"shard_id": shard_name(0), "sequence_number": "8"}, line)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not application.path.exists()


def test_with_several_streams_a_line_says_its_own(application: Application) -> None:
    application.server.create_stream("others")
    both = ("--stream", "orders", "--stream", "others")
    line = {"shard_id": shard_name(0), "sequence_number": "7"}
    refused = take(application, line, options=both)
    assert refused.exit_code == 1
    assert "Line 1 cannot be used: there are several streams, and stream_name is" in refused.stderr
    arn = application.identity.arn.replace("orders", "others")
    lines = ({**line, "stream_name": "orders"}, {**line, "stream_arn": arn})
    assert take(application, *lines, options=both).exit_code == 0
    rows = application.rows()
    assert rows[application.key(0)].checkpoint.progress == after(7)
    assert rows[ShardKey(arn, shard_name(0))].checkpoint.progress == after(7)


def test_what_is_of_other_streams_or_of_a_former_one_is_left_out(application: Application) -> None:
    line = {"shard_id": shard_name(0), "sequence_number": "7"}
    result = take(
        application,
        {**line, "stream_name": "others"},
        {**line, "stream_arn": application.identity.arn.replace("orders", "others")},
        {**line, "stream_created_at": "2000-01-01T00:00:00.000000+00:00"},
        {**line, "shard_id": "shardId-gone"},
        {**line, "shard_id": shard_name(1)},
    )
    assert result.exit_code == 0
    assert "are of other streams: Line 1, Line 2, Line 3, Line 4." in result.stderr
    assert [application.row(number).progress for number in (0, 1)] == [BEGINNING, after(7)]


def test_nothing_is_no_import(application: Application) -> None:
    result = take(application)
    assert result.exit_code == 1
    assert "No row is about a shard of these streams" in result.stderr


def test_ancestors_were_read_and_other_shards_begin_at_the_horizon(
    application: Application,
) -> None:
    for shard_count in (1, 2):
        application.server.reshard("orders", shard_count)
    # 0 and 1 were merged to 2, which was split into 3 and 4.
    result = take(application, {"shard_id": shard_name(3), "sequence_number": "7"})
    assert result.exit_code == 0
    assert [application.row(number).progress for number in range(5)] == [
        *[BEGINNING.ended()] * 3,
        after(7),
        BEGINNING,
    ]


@pytest.fixture
def documented(application: Application) -> Callable[..., None]:
    """Runs the documented command of a program, and imports what it prints."""

    def run(program: str, connection: str) -> None:
        blocks = re.findall(r"```sh\n(.*?)```", _PAGE.read_text(), re.DOTALL)
        (block,) = (one for one in blocks if one.startswith(program))
        command, _, importing = block.rpartition("|")
        assert importing.split()[:4] == ["kinesis-publishers", "leases", "import", "-"]
        function = f'{program}() {{ command {program} {connection} "$@"; }}\n'
        done = subprocess.run(
            ["bash", "-c", function + command], capture_output=True, text=True, check=True
        )
        result = application("import", "-", stdin=done.stdout)
        assert (result.exit_code, result.stderr) == (0, "Imported: 2 shards.\n")
        assert [application.row(n).progress for n in (0, 1)] == [BEGINNING, after(_NUMBER)]

    return run


def fill(server: PostgresServer | MariaDbServer) -> None:
    """Make the table of harlow's examples, with checkpoints of two applications."""
    server.execute("DROP TABLE IF EXISTS kinesis_consumer")
    server.execute(
        "CREATE TABLE kinesis_consumer (namespace VARCHAR(255) NOT NULL, shard_id VARCHAR(255) "
        "NOT NULL, sequence_number NUMERIC(65, 0) NOT NULL, PRIMARY KEY (namespace, shard_id))"
    )
    for namespace, shard in (("app-orders", 1), ("app-others", 0), ("billing-orders", 0)):
        row = f"('{namespace}', '{shard_name(shard)}', {_NUMBER})"
        server.execute(f"INSERT INTO kinesis_consumer VALUES {row}")


def test_postgresql(documented: Callable[..., None], postgres: PostgresServer) -> None:
    fill(postgres)
    documented("psql", f"-d {postgres.url}")


def test_mysql(documented: Callable[..., None], mariadb: MariaDbServer) -> None:
    fill(mariadb)
    address = f"-h127.0.0.1 -P{mariadb.port} -u{USER} -p{PASSWORD} checkpoints"
    documented("mysql", f"--no-defaults {address}")


def test_redis(documented: Callable[..., None], redis_server: RedisServer) -> None:
    redis_server.execute(f"SET app:checkpoint:orders:{shard_name(1)} {_NUMBER}")
    redis_server.execute(f"SET app:checkpoint:others:{shard_name(0)} {_NUMBER}")
    redis_server.execute(f"SET billing:checkpoint:orders:{shard_name(0)} {_NUMBER}")
    documented("redis-cli", f"-p {redis_server.port} -a {PASSWORD} --no-auth-warning")
