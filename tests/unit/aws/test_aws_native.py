"""The functions in native code against those in Python: the same values and the same errors."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import cbor2
import pyarrow as pa
import pytest
from attrs import asdict
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import RecordBatch
from kinesis_publishers.abc import PutAnswer, PutColumns
from kinesis_publishers.aggregation import decode_aggregate, has_aggregates, pack_plain
from kinesis_publishers.aws import cbor
from kinesis_publishers.aws.calls import Answer
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.errors import complete_answer
from kinesis_publishers.aws.subscription import decode_event
from kinesis_publishers.aws.writing import body_of, decode_answer
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.model import hash_keys_of
from kinesis_publishers.model.arrow import _timestamps
from kinesis_publishers.model.native import SWITCH, PackedColumn, find_native, native
from kinesis_publishers.testing.fakes import sample_shard
from tests.examples import examples
from tests.unit.aggregation.aggregate_support import MAGIC, aggregate_of, record_of
from tests.unit.aws.test_aws_decoding import ANSWERS, NOW, as_body, as_cbor, one_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers.model.native import NativeFunctions

# `tox -e native` installs it.
pytest.importorskip("kinesis_publishers_native")

# Of each body, and a million in `tox -e soak`.
MUTATIONS = 50
TEXTS = st.text(max_size=9)
# Of a seed: Hypothesis would keep each number that st.randoms() gives.
CHANCES = st.integers(0, 2**64 - 1).map(random.Random)
DECODERS: dict[str, Callable[[bytes], object]] = {
    "json": decode_get_records,
    "json-packed": partial(decode_get_records, is_packed=True),
    "cbor": partial(decode_get_records, is_cbor=True),
    "cbor-packed": partial(decode_get_records, is_cbor=True, is_packed=True),
    "event": decode_event,
    "event-packed": partial(decode_event, is_packed=True),
}


@contextmanager
def switched(value: str) -> Iterator[NativeFunctions | None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, value)
        find_native.cache_clear()
        yield native()
    find_native.cache_clear()


def outcome(decode: Callable[[bytes], Any], body: bytes) -> object:
    try:
        found = decode(body)
    except KinesisPublishersError as error:
        return type(error), str(error)
    # 1 and 1.0 are equal.
    return None if found is None else repr(asdict(found, value_serializer=unpacked))


def unpacked(_: object, __: object, value: object) -> object:
    return list(value) if isinstance(value, PackedColumn) else value


def assert_equal(decode: Callable[[bytes], Any], bodies: list[bytes]) -> None:
    with switched("0") as nothing:
        assert nothing is None
        expected = [outcome(decode, body) for body in bodies]
    with switched("1") as functions:
        assert functions is not None
        assert [outcome(decode, body) for body in bodies] == expected


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Return ``body`` with one to three changes of the kind that a decoder must survive."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(body))
        end = min(len(body), start + chance.choice([0, 1, 1, 2, 8, 40]))
        piece = chance.choice(
            [
                b"",
                chance.randbytes(end - start),
                body[start:end] * 2,
                chance.choice(SPLICES),
                bytes([chance.choice(LENGTHS)]),
            ]
        )
        body = body[:start] + piece + body[end:]
        if chance.random() < 0.05:
            body = body[: chance.randint(0, len(body))]
    return body


# What means something in one of the formats.
SPLICES = [
    *(b'"', b"\\", b'\\"', b"\\u0000", b"\\ud83d\\ude00", b"\\ud83d", b",", b"]", b"}", b"null"),
    *(b"1e400", b"-0", b"1.5", b"00", b"9" * 20, b"\xff", b"\xf6", b"\xc1\x1b", b"\x80", b"\xbf"),
    *(b"\x5b" + b"\xff" * 8, b"\x9b" + b"\xff" * 8, b"\xbb" + b"\xff" * 8, b"\xc3\xbc", b"="),
    *(b'"Data":"QQ==",', b'"NextShardIterator":null,', b"\x64Data\x41a", b'"new":[{"a":1.5}],'),
]
LENGTHS = [0x18, 0x19, 0x1A, 0x1B, 0x1F, 0x58, 0x78, 0x9F, 0xBF, 0x7F, 0x80, 0x0A, 0x1A]


@pytest.mark.deep
@settings(max_examples=examples(200, deep=True))
@given(ANSWERS, st.none() | TEXTS, CHANCES, st.sampled_from([*DECODERS]))
def test_an_answer_is_decoded_as_in_python_however_damaged(
    answer: dict[str, Any], continuation: str | None, chance: random.Random, kind: str
):
    if kind.startswith("event"):
        answer = answer | {"ContinuationSequenceNumber": continuation}
    body = as_body(answer)
    if kind.startswith("cbor"):
        body = as_cbor(answer, indefinite=chance.random() < 0.5)
    damaged = [mutated(body, chance) for _ in range(MUTATIONS)]
    assert_equal(DECODERS[kind], [body, *damaged])


@given(ANSWERS, st.sampled_from([as_body, as_cbor]))
def test_what_the_service_sends_is_not_left_to_python(
    answer: dict[str, Any], encode: Callable[[object], bytes]
):
    answer["ChildShards"] = []
    with switched("1") as functions:
        assert functions is not None
        assert functions.columns(encode(answer), encode is as_cbor, False) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"Data": "QR=="},
        {"Data": "QQ"},
        {"Data": "Q\u00fc=="},
        {"Data": "QQ==\n"},
        {"Data": ""},
        {"PartitionKey": 'ключ\u0000\u2028\U0001f600\\"/\b\f\n\r\t'},
        {"PartitionKey": ""},
        {"SequenceNumber": "٣"},
        {"ApproximateArrivalTimestamp": 253_402_300_799.999},
        {"ApproximateArrivalTimestamp": 253_402_300_800},
        {"ApproximateArrivalTimestamp": 10**15},
        {"ApproximateArrivalTimestamp": 1e-320},
        {"ApproximateArrivalTimestamp": -0.0},
        {"EncryptionType": ""},
        {"LaterMember": {"inner": [1, 2.5, True, None, "text", {}, []]}},
        {"LaterMember": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]},
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_unusual_values_are_those_of_python(changes: dict[str, Any], escaped: bool):
    answer = one_record(**changes)
    body = json.dumps(answer, ensure_ascii=escaped).encode()
    assert_equal(decode_get_records, [body, body.replace(b": ", b" :\t\n").replace(b"/", b"\\/")])


@given(ANSWERS, st.integers(0, 6), st.integers(0, 6), st.sampled_from([as_body, as_cbor]))
def test_packed_columns_are_as_good_as_lists(
    answer: dict[str, Any], start: int, stop: int, encode: Callable[[object], bytes]
):
    body, is_cbor = encode({**answer, "ChildShards": []}), encode is as_cbor
    with switched("1"):
        packed, plain = (
            RecordBatch.from_page(
                decode_get_records(body, is_cbor=is_cbor, is_packed=is_packed),
                shard=sample_shard(),
                requested_at=NOW,
            ).slice(start, stop)
            for is_packed in (True, False)
        )
    assert isinstance(packed.payloads, PackedColumn)
    for one, other in ((packed, plain), (packed.unpacked(), plain)):
        assert list(one) == list(other)
        assert one.payload_bytes == other.payload_bytes
        assert has_aggregates(one.payloads) == has_aggregates(other.payloads)
        assert list(one.in_order()) == list(other.in_order())
        assert list(one.joined(one)) == list(other.joined(other))
        assert one.last_sequence_number == other.last_sequence_number
        assert [one.payloads[at] for at in range(-len(one), len(one))] == [*other.payloads] * 2
        for is_on in "01":
            with switched(is_on):
                assert one.to_arrow().equals(other.to_arrow())
                assert one.to_arrow().validate(full=True) is None


@pytest.mark.parametrize("payload", [MAGIC, MAGIC + b"\0", MAGIC + b"\xff" * 9, MAGIC[:3], b""])
@pytest.mark.parametrize("encode", [as_body, as_cbor])
def test_a_page_says_whether_it_may_have_aggregates(
    payload: bytes, encode: Callable[[object], bytes]
):
    data = base64.b64encode(payload).decode()
    with switched("1"):
        page = decode_get_records(
            encode(one_record(Data=data)), is_cbor=encode is as_cbor, is_packed=True
        )
    assert has_aggregates(page.payloads) == payload.startswith(MAGIC)


@given(st.lists(st.sampled_from([b"", MAGIC, MAGIC[:3], b"x", MAGIC + b"x", b"x" + MAGIC])))
def test_an_aggregate_is_found_in_a_packed_column(payloads: list[bytes]):
    with switched("1") as functions:
        assert functions is not None
        buffers = functions.joined([b"cut off", *payloads, MAGIC])
        assert buffers is not None
    part = PackedColumn(buffers, is_text=False)[1:-1]
    assert list(part) == payloads
    assert has_aggregates(part) == any(one.startswith(MAGIC) for one in payloads)


@given(st.lists(st.none() | st.text(), max_size=20) | st.lists(st.binary(), max_size=20))
def test_arrays_are_those_of_pyarrow(values: list[Any]):
    kind = pa.binary() if values and isinstance(values[0], bytes) else pa.string()
    with switched("1") as functions:
        assert functions is not None
        try:
            expected = pa.array(values, kind)
        except UnicodeEncodeError:
            assert functions.joined(values) is None
            return
        offsets, data, bitmap = functions.joined(values) or (b"", b"", None)
    bitmap_buffer = None if bitmap is None else pa.py_buffer(bitmap)
    buffers = [bitmap_buffer, pa.py_buffer(offsets), pa.py_buffer(data)]
    found = pa.Array.from_buffers(kind, len(values), buffers)
    found.validate(full=True)
    assert found.equals(expected)


@given(st.lists(st.floats(0, 253_402_300_799.999)))
def test_timestamps_are_those_of_the_kernels_of_arrow(seconds: list[float]):
    with switched("0"):
        expected = _timestamps(seconds)
    with switched("1"):
        assert _timestamps(seconds).equals(expected)


@given(
    st.lists(TEXTS, max_size=4),
    st.lists(st.integers(0, 2**128 - 1).map(str), max_size=2),
    st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9), st.none() | st.integers(0, 1))),
    CHANCES,
)
@settings(max_examples=examples(200, deep=True))
@pytest.mark.deep
def test_an_aggregate_is_taken_apart_as_in_python_however_damaged(
    keys: list[str],
    hash_keys: list[str],
    records: list[tuple[int, bytes, int | None]],
    chance: random.Random,
):
    whole = aggregate_of(keys, hash_keys, [record_of(key, *rest) for key, *rest in records])
    message = whole[len(MAGIC) : -16]
    damaged = [mutated(message, chance) for _ in range(MUTATIONS)]
    sealed = [MAGIC + one + hashlib.md5(one).digest() for one in damaged]
    assert_equal(decode_aggregate, [whole, *sealed, mutated(whole, chance)])


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.text(min_size=1, max_size=140)), min_size=1),
    st.integers(-5, 3000),
    st.integers(1, 20),
)
def test_records_are_packed_to_the_same_aggregate(
    records: list[tuple[bytes, str]], max_bytes: int, max_records: int
):
    payloads, keys = [list(column) for column in zip(*records, strict=True)]
    pack = partial(pack_plain, payloads, keys, max_bytes=max_bytes, max_records=max_records)
    with switched("0"):
        expected = pack()
    with switched("1"):
        assert pack() == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 23, 24, 255, 256, 65_535, 65_536]).map(bytes) | st.binary(),
            st.text(min_size=1, max_size=256) | st.none(),
        ),
        min_size=1,
    ),
    st.booleans(),
)
def test_records_are_put_in_the_same_bytes(
    records: list[tuple[bytes, str | None]], has_hash_keys: bool
):
    payloads, keys = zip(*records, strict=True)
    hash_keys = [str(number) for number in range(len(records))] if has_hash_keys else None
    columns = PutColumns(payloads=payloads, partition_keys=keys, explicit_hash_keys=hash_keys)
    encode = partial(body_of, columns, True, {"StreamARN": "arn:aws:kinesis:stream/orders"})
    with switched("0"):
        expected = encode()
    with switched("1"):
        assert encode() == expected


PLACES = st.fixed_dictionaries(
    {"ShardId": TEXTS, "SequenceNumber": TEXTS},
    optional={
        "ErrorCode": st.none() | st.sampled_from(["", "InternalFailure"]),
        "ErrorMessage": st.none() | TEXTS,
        "EncryptionType": st.none() | TEXTS,
        "new": st.none() | st.integers() | st.lists(TEXTS, max_size=1),
    },
)


def put_answer(body: bytes, count: int) -> PutAnswer:
    with complete_answer("PutRecords", "orders"):
        return decode_answer(
            Answer(200, {"content-type": cbor.CONTENT_TYPE}, body), count, "orders"
        )


@pytest.mark.deep
@settings(max_examples=examples(200, deep=True))
@given(st.lists(PLACES, max_size=4), st.integers(-1, 1), CHANCES)
def test_results_of_records_are_those_of_python_however_damaged(
    places: list[dict[str, Any]], too_many: int, chance: random.Random
):
    answer = {"FailedRecordCount": 0, "Records": places, "EncryptionType": "KMS"}
    body = cbor2.dumps(answer, indefinite_containers=chance.random() < 0.5)
    damaged = [mutated(body, chance) for _ in range(MUTATIONS)]
    count = len(places) + chance.choice([0, 0, 0, too_many])
    assert_equal(partial(put_answer, count=count), [body, *damaged])


def test_an_answer_that_refuses_nothing_is_not_left_to_python():
    places = [{"ShardId": "shardId-0", "SequenceNumber": str(one)} for one in range(500)]
    refused = [*places, {"ErrorCode": "InternalFailure", "ErrorMessage": ""}]
    with switched("1") as functions:
        assert functions is not None
        found = functions.put_answer(cbor2.dumps({"FailedRecordCount": 0, "Records": places}))
        assert found == (["shardId-0"] * 500, [str(one) for one in range(500)])
        assert functions.put_answer(cbor2.dumps({"Records": refused})) is None
        columns = [b"x"] * 500, ["k"] * 500
        assert functions.put_request(*columns, "StreamName", "orders") is not None


@given(st.lists(TEXTS))
def test_hash_keys_are_those_of_python(keys: list[str]):
    with switched("0"):
        expected = hash_keys_of(keys)
    with switched("1"):
        assert hash_keys_of(keys) == expected
