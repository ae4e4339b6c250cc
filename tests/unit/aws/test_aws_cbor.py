"""Answers in CBOR, and damaged ones in JSON: what is not a whole and sound page is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws import cbor
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.errors import MalformedResponseError
from tests.unit.aws.test_aws_decoding import (
    ANSWERS,
    as_body,
    as_cbor,
    assert_decodes_or_refuses,
    cbor_of,
    one_record,
    paths_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE = as_cbor(one_record())
RECORD = cbor_of("", one_record()["Records"][0])
assert isinstance(RECORD, dict)
CBOR_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**63)
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(cbor2.undefined),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.builds(cbor2.CBORTag, st.integers(0, 300), inner)
    ),
    max_leaves=5,
)


def item(value: object) -> bytes:
    return cbor2.dumps(value)


def with_record(**changes: object) -> bytes:
    return item({"Records": [{**RECORD, **changes}], "NextShardIterator": "i"})


@given(ANSWERS)
def test_definite_and_indefinite_lengths_say_the_same(answer: dict[str, Any]):
    bodies = as_cbor(answer, indefinite=True), as_cbor(answer, indefinite=False)
    first, second = (asdict(decode_get_records(body, is_cbor=True)) for body in bodies)
    assert first == second


def test_an_arrival_time_is_the_float_that_json_has_for_it():
    millis = range(1_700_000_000_000, 1_700_000_001_000)
    records = [{**RECORD, "ApproximateArrivalTimestamp": cbor2.CBORTag(1, at)} for at in millis]
    page = decode_get_records(item({"Records": records}), is_cbor=True)
    assert list(page.arrival_epoch_seconds) == [
        float(f"{at // 1000}.{at % 1000:03d}") for at in millis
    ]


def test_a_payload_in_pieces_is_put_together():
    pieces = b"\x5f" + item(b"a") + item(b"bc") + b"\xff"
    body = with_record(Data=b"marker").replace(item(b"marker"), pieces)
    assert decode_get_records(body, is_cbor=True).payloads == [b"abc"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(item([]), id="no map"),
        pytest.param(item(None), id="null"),
        pytest.param(item({}), id="no records"),
        pytest.param(item({"Records": "abc"}), id="records as text"),
        pytest.param(item({"Records": b"abc"}), id="records as bytes"),
        pytest.param(item({"Records": [None]}), id="a null record"),
        pytest.param(with_record(Data="YQ=="), id="base64"),
        pytest.param(with_record(Data=None), id="no payload"),
        pytest.param(with_record(PartitionKey=b"k"), id="a key of bytes"),
        pytest.param(with_record(SequenceNumber=1), id="a number as a number"),
        pytest.param(with_record(EncryptionType=cbor2.undefined), id="undefined"),
        *(
            pytest.param(with_record(ApproximateArrivalTimestamp=time), id=f"time {time!r:.40}")
            for time in (
                None,
                True,
                "2026-01-01T00:00Z",
                -1,
                10**18,
                2**4000,
                cbor2.CBORTag(1, "1"),
                cbor2.CBORTag(1, float("nan")),
                cbor2.CBORTag(1, float("inf")),
                cbor2.CBORTag(0, "2026-01-01T00:00:00Z"),
                cbor2.CBORTag(4, [2**40, 1]),
            )
        ),
        pytest.param(
            item({"Records": [RECORD, {**RECORD, "ApproximateArrivalTimestamp": float("nan")}]}),
            id="a later time that is no number",
        ),
        pytest.param(item({"Records": [], "MillisBehindLatest": 2**80}), id="a lag of ages"),
        pytest.param(item({"Records": [], "NextShardIterator": b"i"}), id="an iterator of bytes"),
        pytest.param(WHOLE + b"\x00", id="another item behind"),
        pytest.param(WHOLE + WHOLE, id="two answers"),
        pytest.param(WHOLE + b"\xff", id="a break behind"),
        pytest.param(b"\xa2" + item("Records") + item([]) + item("Records") + item([]), id="twice"),
        pytest.param(b"\x5b" + b"\x7f" + b"\xff" * 7, id="bytes of 2**63"),
        pytest.param(b"\x9b" + b"\xff" * 8, id="a list of 2**64"),
        pytest.param(b"\xbb" + b"\x00\x00\x00\x7f" + b"\xff" * 4, id="a map of 2**39"),
        pytest.param(b"\x81" * 100_000, id="lists in lists"),
        pytest.param(b"\xc1" * 100_000, id="tags on tags"),
        pytest.param(b"\x5f" * 100_000, id="strings in strings"),
        pytest.param(b"\x1c", id="a reserved length"),
        pytest.param(b"\xff", id="a break alone"),
        pytest.param(b'{"Records":[]}', id="JSON"),
    ],
)
def test_what_the_service_does_not_send_is_refused(body: bytes):
    with pytest.raises(MalformedResponseError, match="Nothing of it was used") as caught:
        decode_get_records(body, is_cbor=True)
    assert caught.value.retryable


@given(ANSWERS, st.booleans(), st.data())
def test_an_answer_that_is_cut_off_anywhere_is_refused(
    answer: dict[str, Any], indefinite: bool, data: st.DataObject
):
    body = as_cbor(answer, indefinite=indefinite)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedResponseError):
        decode_get_records(body[:end], is_cbor=True)


@pytest.mark.parametrize("is_cbor", [False, True])
@given(body=st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_or_refused(body: bytes, is_cbor: bool):
    assert_decodes_or_refuses(body, is_cbor=is_cbor)


@given(CBOR_VALUES)
def test_arbitrary_values_are_decoded_or_refused(value: object):
    assert_decodes_or_refuses(item(value), is_cbor=True)


@given(ANSWERS, st.data())
def test_an_answer_with_one_value_replaced_is_decoded_or_refused(
    answer: dict[str, Any], data: st.DataObject
):
    whole: Any = cbor_of("", answer)
    path = data.draw(st.sampled_from(sorted(paths_in(whole), key=str)))
    target = whole
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = data.draw(CBOR_VALUES)
    assert_decodes_or_refuses(item(whole), is_cbor=True)


@pytest.mark.parametrize("encode", [as_body, as_cbor])
@given(answer=ANSWERS, data=st.data())
def test_an_answer_with_bytes_changed_is_decoded_or_refused(
    answer: dict[str, Any], data: st.DataObject, encode: Callable[[object], bytes]
):
    body = bytearray(encode(answer))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert_decodes_or_refuses(bytes(body), is_cbor=encode is as_cbor)


def test_a_request_is_written_as_aws_writes_it():
    body = cbor.dumps({"ShardId": "s", "Limit": 10, "Timestamp": 1_700_000_000.123})
    assert body == bytes.fromhex(
        # A map of indefinite length, and the tag 1 on milliseconds.
        f"bf 67{b'ShardId'.hex()} 61{b's'.hex()} 65{b'Limit'.hex()} 0a"
        f" 69{b'Timestamp'.hex()} c1 1b0000018bcfe5687b ff"
    )
    assert cbor.loads(body) == {"ShardId": "s", "Limit": 10, "Timestamp": 1_700_000_000_123}
