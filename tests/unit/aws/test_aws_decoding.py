"""Our decoder of GetRecords against botocore's own parser, and against everything else."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import botocore.session
import cbor2
import pytest
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import RecordBatch, RecordPage
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.errors import MalformedResponseError
from kinesis_publishers.testing.fakes import sample_shard

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OUTPUT_SHAPE = (
    botocore.session.get_session()
    .get_service_model("kinesis")
    .operation_model("GetRecords")
    .output_shape
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NUMBERS = st.integers(0, 10**56).map(str)
HASH_KEYS = st.integers(0, 2**128 - 1).map(str)
SECONDS = st.integers(0, 4_000_000_000) | st.integers(0, 4_000_000_000_000).map(
    lambda millis: millis / 1000
)
RECORDS = st.fixed_dictionaries(
    {
        "Data": st.binary(max_size=50).map(lambda data: base64.b64encode(data).decode()),
        "SequenceNumber": NUMBERS,
        "ApproximateArrivalTimestamp": SECONDS,
    },
    optional={
        "PartitionKey": st.none() | TEXTS,
        "EncryptionType": st.sampled_from(["KMS", "NONE", None]),
    },
)
CHILD_SHARDS = st.fixed_dictionaries(
    {
        "ShardId": TEXTS,
        "ParentShards": st.lists(TEXTS, min_size=1, max_size=2),
        "HashKeyRange": st.fixed_dictionaries(
            {"StartingHashKey": HASH_KEYS, "EndingHashKey": HASH_KEYS}
        ),
    }
)
ANSWERS = st.fixed_dictionaries(
    {"Records": st.lists(RECORDS, max_size=5)},
    optional={
        "NextShardIterator": st.none() | TEXTS,
        "MillisBehindLatest": st.none() | st.integers(0, 10**12),
        "ChildShards": st.none() | st.lists(CHILD_SHARDS, max_size=2),
    },
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def as_body(answer: object) -> bytes:
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_cbor(answer: object, *, indefinite: bool = True) -> bytes:
    """Return an answer as the service writes it in CBOR."""
    return cbor2.dumps(cbor_of("", answer), indefinite_containers=indefinite)


def cbor_of(name: str, value: object) -> object:
    if isinstance(value, dict):
        return {key: cbor_of(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [cbor_of(name, item) for item in value]
    if name == "Data" and isinstance(value, str):
        return base64.b64decode(value)
    if name == "ApproximateArrivalTimestamp" and type(value) in (int, float):
        return cbor2.CBORTag(1, round(value * 1000))  # type: ignore[operator]
    return value


def parse_with_botocore(body: bytes) -> dict[str, Any]:
    response = {"status_code": 200, "headers": {}, "body": body, "context": {}}
    parsed: dict[str, Any] = create_parser("json").parse(response, OUTPUT_SHAPE)
    for record in parsed["Records"]:
        # botocore's are in this machine's zone, where an hour may come twice.
        moment = record["ApproximateArrivalTimestamp"]
        record["ApproximateArrivalTimestamp"] = moment.astimezone(UTC)
    return parsed


@given(ANSWERS, st.sampled_from([as_body, as_cbor]))
def test_every_field_is_what_botocore_makes_of_it(
    answer: dict[str, Any], encode: Callable[[object], bytes]
):
    expected = parse_with_botocore(as_body(answer))
    page = decode_get_records(encode(answer), is_cbor=encode is as_cbor)
    batch = RecordBatch.from_page(page, shard=sample_shard(), requested_at=NOW)
    assert [
        {
            "Data": record.data,
            **({"PartitionKey": record.partition_key} if record.partition_key else {}),
            "SequenceNumber": record.sequence_number,
            "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
            **({"EncryptionType": record.encryption_type} if record.encryption_type else {}),
        }
        for record in batch
    ] == expected["Records"]
    assert page.next_shard_iterator == expected.get("NextShardIterator")
    assert page.millis_behind_latest == expected.get("MillisBehindLatest")
    assert [
        {
            "ShardId": child.shard_id,
            "ParentShards": list(child.parent_shard_ids),
            "HashKeyRange": {
                "StartingHashKey": child.starting_hash_key,
                "EndingHashKey": child.ending_hash_key,
            },
        }
        for child in page.child_shards
    ] == expected.get("ChildShards", [])


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 999)), min_size=1, max_size=9))
def test_timestamps_keep_their_milliseconds(times: list[tuple[int, int]]):
    texts = [f"{seconds}.{millis:03d}" for seconds, millis in times]
    records = ",".join(
        f'{{"Data":"","PartitionKey":"k","SequenceNumber":"{at}",'
        f'"ApproximateArrivalTimestamp":{text}}}'
        for at, text in enumerate(texts)
    )
    page = decode_get_records(f'{{"Records":[{records}]}}'.encode())
    batch = RecordBatch.from_page(page, shard=sample_shard(), requested_at=NOW)
    found = [record.approximate_arrival_timestamp for record in batch]
    assert [round(one.timestamp() * 1000) for one in found] == [
        seconds * 1000 + millis for seconds, millis in times
    ]
    assert all(one.microsecond % 1000 == 0 for one in found)


def test_the_other_timestamp_formats_of_the_protocol_are_understood():
    page = decode_get_records(as_body(one_record(ApproximateArrivalTimestamp="2026-01-01T00:00Z")))
    assert list(page.arrival_epoch_seconds) == [NOW.timestamp()]


CHILD = {
    "ShardId": "s",
    "ParentShards": ["p"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "f"},
}


def one_record(**changes: object) -> dict[str, Any]:
    record = {
        "Data": "YQ==",
        "PartitionKey": "k",
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": 1.5,
    }
    return {"Records": [record | changes], "NextShardIterator": "i", "MillisBehindLatest": 0}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        None,
        {"Records": 5},
        {"Records": [None]},
        one_record(Data="not base64!"),
        one_record(Data="YQ"),
        one_record(Data=None),
        one_record(PartitionKey=5),
        one_record(SequenceNumber=1),
        one_record(SequenceNumber=""),
        one_record(SequenceNumber="-1"),
        one_record(ApproximateArrivalTimestamp="yesterday"),
        one_record(ApproximateArrivalTimestamp=None),
        one_record(ApproximateArrivalTimestamp=True),
        one_record(ApproximateArrivalTimestamp=1e300),
        one_record(EncryptionType=5),
        one_record() | {"NextShardIterator": 7},
        one_record() | {"NextShardIterator": ""},
        one_record() | {"MillisBehindLatest": "late"},
        one_record() | {"ChildShards": [{"ShardId": "s"}]},
        one_record() | {"ChildShards": [CHILD]},
        one_record() | {"ChildShards": "s"},
        {"Records": [{"Data": "YQ=="}]},
    ],
)
def test_what_the_service_model_does_not_allow_is_refused(answer: object):
    with pytest.raises(MalformedResponseError, match="Nothing of it was used"):
        decode_get_records(as_body(answer))


def test_a_truncated_body_is_refused_and_may_be_asked_for_again():
    body = as_body(one_record())
    with pytest.raises(MalformedResponseError) as caught:
        decode_get_records(body[:-1])
    assert caught.value.retryable
    assert caught.value.operation == "GetRecords"


def assert_decodes_or_refuses(body: bytes, *, is_cbor: bool = False) -> None:
    try:
        page = decode_get_records(body, is_cbor=is_cbor)
    except MalformedResponseError:
        return
    assert_is_sound(page)


def assert_is_sound(page: RecordPage) -> None:
    """A page that passes must be fit for everything that happens to it later."""
    batch = RecordBatch.from_page(page, shard=sample_shard(), requested_at=NOW)
    assert batch.to_arrow().num_rows == len(list(batch))
    assert (batch.last_arrival is None) == (len(batch) == 0)
    assert (batch.last_sequence_number is None) == (len(batch) == 0)
    assert all(record.approximate_arrival_timestamp.tzinfo for record in batch)
    assert page.next_shard_iterator is None or (
        isinstance(page.next_shard_iterator, str) and page.next_shard_iterator
    )
    assert page.millis_behind_latest is None or type(page.millis_behind_latest) is int
    for child in page.child_shards:
        assert isinstance(child.shard_id, str)
        assert all(isinstance(one, str) for one in child.parent_shard_ids)


@given(JSON_VALUES)
def test_arbitrary_json_is_decoded_or_refused(value: object):
    assert_decodes_or_refuses(as_body(value))


@given(ANSWERS, st.data())
def test_an_answer_with_one_value_replaced_is_decoded_or_refused(
    answer: dict[str, Any], data: st.DataObject
):
    path = data.draw(st.sampled_from(sorted(paths_in(answer), key=str)))
    target: Any = answer
    for step in path[:-1]:
        target = target[step]
    if data.draw(st.booleans()) or not isinstance(target, dict):
        target[path[-1]] = data.draw(JSON_VALUES | st.floats() | SECONDS | TEXTS)
    else:
        del target[path[-1]]
    assert_decodes_or_refuses(as_body(answer))


def paths_in(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each value inside ``value``."""
    steps = value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
    found = []
    for step, inner in steps:
        found.append((*path, step))
        if isinstance(inner, dict | list):
            found.extend(paths_in(inner, (*path, step)))
    return found
