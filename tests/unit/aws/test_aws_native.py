"""The functions in native code against those in Python: the same values and the same errors."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from attrs import asdict
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.aggregation import decode_aggregate, pack_plain
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.subscription import decode_event
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.model import hash_keys_of
from kinesis_publishers.model.native import SWITCH, find_native, native
from tests.examples import examples
from tests.unit.aggregation.aggregate_support import MAGIC, aggregate_of, record_of
from tests.unit.aws.test_aws_decoding import ANSWERS, as_body, as_cbor, one_record

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from kinesis_publishers.model.native import NativeFunctions

# `tox -e native` installs it.
pytest.importorskip("kinesis_publishers_native")

# Of each body, and a million in `tox -e soak`.
MUTATIONS = 50
TEXTS = st.text(max_size=9)
DECODERS: dict[str, Callable[[bytes], object]] = {
    "json": decode_get_records,
    "cbor": partial(decode_get_records, is_cbor=True),
    "event": decode_event,
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
    return None if found is None else repr(asdict(found))


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
@settings(max_examples=examples(70, deep=True))
@given(ANSWERS, st.none() | TEXTS, st.randoms(use_true_random=False), st.sampled_from([*DECODERS]))
def test_an_answer_is_decoded_as_in_python_however_damaged(
    answer: dict[str, Any], continuation: str | None, chance: random.Random, kind: str
):
    if kind == "event":
        answer = answer | {"ContinuationSequenceNumber": continuation}
    body = as_cbor(answer, indefinite=chance.random() < 0.5) if kind == "cbor" else as_body(answer)
    damaged = [mutated(body, chance) for _ in range(MUTATIONS)]
    assert_equal(DECODERS[kind], [body, *damaged])


@given(ANSWERS, st.sampled_from([as_body, as_cbor]))
def test_what_the_service_sends_is_not_left_to_python(
    answer: dict[str, Any], encode: Callable[[object], bytes]
):
    answer["ChildShards"] = []
    with switched("1") as functions:
        assert functions is not None
        assert functions.columns(encode(answer), encode is as_cbor) is not None


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


@given(
    st.lists(TEXTS, max_size=4),
    st.lists(st.integers(0, 2**128 - 1).map(str), max_size=2),
    st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9), st.none() | st.integers(0, 1))),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(70, deep=True))
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


@given(st.lists(TEXTS))
def test_hash_keys_are_those_of_python(keys: list[str]):
    with switched("0"):
        expected = hash_keys_of(keys)
    with switched("1"):
        assert hash_keys_of(keys) == expected
