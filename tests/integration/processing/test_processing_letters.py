"""Dead letters: in a file, in a stream, and never in the stream that is read."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import DeadLetter, Record, RetryOnError, event_loop, records, scan
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.processing.letters import PART_BYTES, letters_of
from tests.integration.processing.processing_support import STREAM, Orders
from tests.integration.processing.test_processing_values import put, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
_PLAIN: dict[str, Any] = {
    "data": b"",
    "partition_key": "key",
    "sequence_number": "7",
    "arrival_epoch_seconds": 0.0,
    "encryption_type": None,
    "shard_id": "shardId-000000000000",
    "stream_name": STREAM,
}


@pytest.fixture(autouse=True)
def _no_producer_is_left() -> Iterator[None]:
    yield
    event_loop.close_all()  # As the end of the program does.


def test_a_file_of_dead_letters_is_looked_at_before_the_first_record(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in ("missing/letters", "link", "."):
        with pytest.raises(InvalidOptionError, match="The folder has to be there"):
            DeadLetter.to_file(tmp_path / path)
    late = DeadLetter.to_file(tmp_path / "late")
    (tmp_path / "late").unlink()
    (tmp_path / "late").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="symbolic links"):
        late.put_aside(Record(**_PLAIN), ValueError())
    assert not (tmp_path / "file").exists()


def test_a_file_of_dead_letters_is_private_and_a_torn_line_spoils_no_other(
    orders: Orders, tmp_path: Path
) -> None:
    put(orders, b"one", b"1", b"two", b"2")
    file = tmp_path / "letters.jsonl"
    aside = DeadLetter.to_file(file)
    assert values(orders, 1, decode="json", on_error=aside) == [1]
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("ab") as torn:
        torn.write(b'{"data":"dHd')
    assert values(orders, 1, decode="json", on_error=aside) == [2]
    assert json.loads(file.read_text().splitlines()[-1])["data"] == "dHdv"


def letters_in(orders: Orders, stream: str = "letters") -> list[tuple[str, dict[str, Any]]]:
    """Return the partition key of each letter, and what it holds."""
    event_loop.close_all()
    shards = orders.server.records(stream).values()
    return [(row.partition_key, json.loads(row.data)) for rows in shards for row in rows]


def test_dead_letters_go_to_a_stream_and_say_where_their_records_are(orders: Orders) -> None:
    orders.server.create_stream("letters")
    put(orders, b"one", b"two", b"3")
    aside = DeadLetter.to_stream(orders.server.properties(STREAM), stream="letters")
    assert values(orders, 1, decode="json", on_error=aside) == [3]
    (key, first), (_, second) = letters_in(orders)
    assert (key, b64decode(first["data"]), b64decode(second["data"])) == (
        "one shard",
        b"one",
        b"two",
    )
    with records(orders.properties(checkpoint_application="again")) as stream:
        for letter, record in zip((first, second), stream, strict=False):
            for name in ("stream_name", "shard_id", "sequence_number", "sub_sequence_number"):
                assert letter[name] == getattr(record, name)
    assert first["error"].startswith("JSONDecodeError(")


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_stream_takes_every_record_as_letters(orders: Orders, tmp_path: Path) -> None:
    """Keys that Kinesis would refuse, none, more than it takes at once, errors of any kind."""
    orders.server.create_stream("letters")
    large = b"\xff" * (2 * PART_BYTES) + b"!"
    fast = {"kinesis.producer.ratelimit": "10000"}
    policies = [
        DeadLetter.to_stream({**orders.server.properties("letters"), **fast}),
        DeadLetter.to_file(file := tmp_path / "letters.jsonl"),
    ]
    for policy in policies:
        bad_keys = {"partition_key": "", "explicit_hash_key": "no number"}
        policy.put_aside(Record(**{**_PLAIN, **bad_keys}), Unprintable())
        policy.put_aside(Record(**{**_PLAIN, "partition_key": None}), ValueError("\ud800"))
        error = UnicodeDecodeError("utf-8", large, 0, 1, "no text")
        policy.put_aside(Record(**{**_PLAIN, "data": large}), error)
    rows = sorted((letter for _, letter in letters_in(orders)), key=lambda row: row["part"])
    assert sorted(row["parts"] for row in rows) == [1, 1, 3, 3, 3]
    assert b"".join(b64decode(row["data"]) for row in rows) == large
    assert {row["sequence_number"] for row in rows} == {"7"}
    assert all(len(row["error"]) <= 1000 for row in rows)
    in_file = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [b64decode(row["data"]) for row in in_file] == [b"", b"", large]


@pytest.mark.parametrize(
    ("read_by", "written_by"),
    [
        ({}, {}),
        ({"stream": "{arn}"}, {"stream": "{arn}"}),
        ({"stream": "{arn}"}, {}),
        ({"region": "us-east-1"}, {}),
    ],
)
def test_letters_do_not_go_to_the_stream_that_is_read(
    orders: Orders,
    monkeypatch: pytest.MonkeyPatch,
    read_by: dict[str, str],
    written_by: dict[str, str],
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    given = orders.properties()
    read_by, written_by = (
        {name: text.format(arn=_ARN) for name, text in one.items()} for one in (read_by, written_by)
    )
    aside = DeadLetter.to_stream(given, **written_by)
    for policy in (aside, RetryOnError(otherwise=aside)):
        with pytest.raises(InvalidOptionError, match="orders is the stream that is read"):
            scan(given, print, on_error=policy, **read_by)
    with pytest.raises(InvalidOptionError, match="orders is the stream that is read"):
        records(given, decode="json", on_error=aside, **read_by)


@pytest.mark.parametrize(
    "written_by",
    [
        {"kinesis.streams": "letters"},
        {"aws.region": "eu-west-1"},
        {"kinesis.streams": "arn:aws:kinesis:us-east-1:999999999999:stream/orders"},
        {"aws.credentials.provider": "AUTO"},
    ],
)
def test_letters_may_go_to_a_stream_of_that_name_elsewhere(
    orders: Orders, written_by: dict[str, str]
) -> None:
    given = orders.properties()
    with_arn = {**given, "kinesis.streams": _ARN}
    records(with_arn, decode="json", on_error=DeadLetter.to_stream({**given, **written_by}))


def test_letters_that_come_back_are_not_put_again_for_ever(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    given = orders.properties()
    # The same by another name.
    other = {**given, "aws.endpoint": given["aws.endpoint"].replace("127.0.0.1", "localhost")}

    def decode(data: bytes) -> int:
        if data.startswith(b'{"letter":3,'):
            put(orders, b"7")
        return int(data)

    put(orders, b"one")
    assert values(orders, 1, decode=decode, on_error=DeadLetter.to_stream(other)) == [7]
    payloads = [row.data for rows in orders.server.records(STREAM).values() for row in rows]
    assert [data[:11] for data in payloads if data[:1] == b"{"] == [
        b'{"letter":%d' % number for number in (1, 2, 3)
    ]
    assert "has been put aside 3 times, and is left where it is" in caplog.text


_FORGED: dict[str, Any] = {
    "letter": 3,
    "id": "orders/shardId-000000000000/5/",
    "data": "b25l",
    "part": 1,
    "parts": 1,
    "error": "none",
}


def forged(**fields: Any) -> bytes:
    return json.dumps({**_FORGED, **fields}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "payload",
    [
        b'{"letter":7,"text":"hello"}',
        *(forged(letter=count) for count in (-1, 0, True, 4, 7)),
        *(forged(**{name: None}) for name in _FORGED),
        *(forged(id=name) for name in ("", "5", "a/b/c/")),
        *(forged(part=2), forged()[:-1], forged() + b"1", b"[" + forged() + b"]"),
    ],
)
def test_what_only_looks_like_a_letter_is_put_aside_as_any_record(payload: bytes) -> None:
    (line,) = letters_of(Record(**{**_PLAIN, "data": payload}), ValueError(), PART_BYTES)
    assert (json.loads(line)["letter"], b64decode(json.loads(line)["data"])) == (1, payload)


def test_a_forged_letter_is_named_in_the_log_and_stays_in_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = Record(**{**_PLAIN, "data": forged()})
    assert list(letters_of(record, ValueError(), PART_BYTES)) == []
    (entry,) = caplog.records
    assert (entry.levelname, record.id in entry.message) == ("ERROR", True)
