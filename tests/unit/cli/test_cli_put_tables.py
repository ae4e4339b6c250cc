"""``put``: the rows of a table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.unit.cli.cli_support import ORDERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.cli_support import RunCommand


def stored(run: RunCommand) -> list[tuple[str, bytes]]:
    return [
        (record.partition_key, record.data)
        for shard in run.server.records(ORDERS).values()
        for record in shard
    ]


def write_parquet(path: Path, columns: dict[str, Any]) -> str:
    parquet.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize("is_piped", [False, True])
def test_a_row_of_csv_is_an_object_of_texts(
    run: RunCommand, tmp_path: Path, is_piped: bool
) -> None:
    content = '\ufeffid,note\r\n007,"two\nlines, ""quoted"""\r\n\r\n8,\r\n'.encode()
    file = tmp_path / "orders.CSV"
    file.write_bytes(content)
    options = ("--format", "csv") if is_piped else ("--file", str(file))
    result = run("put", "-k", "k", *options, stdin=content)
    assert result.exit_code == 0, result.stderr
    assert [json.loads(data) for _, data in stored(run)] == [
        {"id": "007", "note": 'two\nlines, "quoted"'},
        {"id": "8", "note": ""},
    ]
    assert result.stderr == "Wrote 2 records to orders.\n"


@pytest.mark.parametrize("is_piped", [False, True])
def test_a_row_of_parquet_keeps_its_types(run: RunCommand, tmp_path: Path, is_piped: bool) -> None:
    at = datetime(2026, 11, 25, 1, 2, 3, 4000, tzinfo=UTC)
    columns = {
        "n": pa.array([2**63 - 1]),
        "ns": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        "day": pa.array([date(2026, 11, 25)]),
        "at": pa.array([at]),
        "price": pa.array([Decimal("12345678901234567890.10")]),
        "raw": pa.array([b"\xff"]),
        "nothing": pa.array([None], pa.string()),
        "nested": pa.array([{"a": [1.5]}]),
    }
    file = write_parquet(tmp_path / "x.parquet", columns)
    content = (tmp_path / "x.parquet").read_bytes()
    options = ("--format", "parquet") if is_piped else ("--file", file)
    result = run("put", *options, stdin=content)
    assert result.exit_code == 0, result.stderr
    ((_, data),) = stored(run)
    assert data == (
        b'{"n":9223372036854775807,"ns":"2023-11-14T22:13:20.123456789","day":"2026-11-25",'
        b'"at":"2026-11-25T01:02:03.004000+00:00",'
        b'"price":"12345678901234567890.10","raw":"/w==","nothing":null,"nested":{"a":[1.5]}}'
    )


def test_columns_are_data_and_partition_key(run: RunCommand, tmp_path: Path) -> None:
    columns = {"raw": [b"\xff", b""], "id": [7, 8]}
    file = write_parquet(tmp_path / "x.parquet", columns)
    columns_are = ("--data-column", "raw", "--key-column", "id")
    assert run("put", "--file", file, *columns_are).exit_code == 0
    assert sorted(stored(run)) == [("7", b"\xff"), ("8", b"")]


def test_thousands_of_rows_are_put(run: RunCommand, tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "x.parquet", {"n": list(range(1201))})
    assert run("put", "--file", file, "--aggregate", "-q").exit_code == 0
    tailed = run("tail", "--start", "TRIM_HORIZON", "--end", "LATEST", "--json", "--data", "text")
    found = [json.loads(json.loads(line)["data"])["n"] for line in tailed.stdout.splitlines()]
    assert sorted(found) == list(range(1201))


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("csv", "a,b\n1,2\n1\n", "has 1 fields in line 3, and its first line names 2"),
        ("csv", "a,a\n1,2\n", "has several columns with the name 'a'"),
        ("csv", 'a\n"open', "cannot be read as csv"),
        ("csv", b"a\n\xff\n", "is not UTF-8"),
        ("parquet", "no parquet", "cannot be read as parquet"),
    ],
)
def test_a_table_that_cannot_be_read_is_an_error(
    run: RunCommand, form: str, content: str | bytes, message: str
) -> None:
    result = run("put", "--format", form, stdin=content)
    assert result.exit_code == 1
    assert f"Standard input {message}" in result.stderr


def test_rows_before_a_bad_one_are_written(run: RunCommand) -> None:
    lines = "".join(f"{n}\n" for n in range(600))
    result = run("put", "-k", "k", "--format", "csv", stdin=f"a\n{lines}1,2\n")
    assert result.exit_code == 1
    assert "has 2 fields in line 602" in result.stderr
    assert result.stderr.endswith(" Wrote 600 records before that.\n")
    assert len(stored(run)) == 600


def test_columns_that_are_not_there_are_wrong_usage(run: RunCommand) -> None:
    result = run("put", "--format", "csv", "--key-column", "c", stdin="a,b\n1,2\n")
    assert result.exit_code == 2
    assert "Standard input has no column 'c'; its columns are 'a', 'b'." in result.stderr


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"k": ["a", None]}, ("--key-column", "k"), "no partition key in row 2, but None"),
        ({"k": [float("nan")]}, ("--key-column", "k"), "no partition key in row 1, but nan"),
        ({"d": [1]}, ("--data-column", "d"), "neither bytes nor text in row 1, but 1"),
        ({"d": [timedelta(1)]}, (), "has what JSON has not in row 1: Type is not JSON"),
    ],
)
def test_a_row_that_is_no_record_is_an_error(
    run: RunCommand,
    tmp_path: Path,
    columns: dict[str, Any],
    options: tuple[str, ...],
    message: str,
) -> None:
    file = write_parquet(tmp_path / "x.parquet", columns)
    result = run("put", "--file", file, *options)
    assert result.exit_code == 1
    assert message in result.stderr
