"""What is made of the frames of a subscription."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.event_stream import Frame
from kinesis_publishers.aws.subscription import (
    carries_records,
    decode_event,
    error_in_frame,
)
from kinesis_publishers.errors import (
    AccessDeniedError,
    EncryptionKeyError,
    InternalServiceError,
    MalformedResponseError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
)

RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "Data": st.binary(max_size=900).map(lambda data: base64.b64encode(data).decode()),
            "PartitionKey": st.text(min_size=1, max_size=9),
            "SequenceNumber": st.integers(0, 10**56).map(str),
            "ApproximateArrivalTimestamp": st.integers(0, 4_000_000_000),
        }
    ),
    max_size=4,
)


def payload(**members: Any) -> bytes:
    return json.dumps({"Records": [], "MillisBehindLatest": 0, **members}).encode()


@given(RECORDS, st.none() | st.integers(0, 10**12))
def test_an_event_has_the_columns_of_a_page(records: list[dict[str, Any]], lag: int | None):
    body = payload(Records=records, MillisBehindLatest=lag, ContinuationSequenceNumber="12")
    event, page = decode_event(body), decode_get_records(body)
    for column in (
        "payloads",
        "partition_keys",
        "sequence_numbers",
        "arrival_epoch_seconds",
        "encryption_types",
        "millis_behind_latest",
    ):
        assert getattr(event.page, column) == getattr(page, column)
    assert event.continuation_sequence_number == SequenceNumber("12")


def test_the_end_of_a_shard_has_no_continuation_but_child_shards():
    child = {
        "ShardId": "shardId-1",
        "ParentShards": ["shardId-0"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }
    for members in ({}, {"ContinuationSequenceNumber": None}):
        event = decode_event(payload(ChildShards=[child], **members))
        assert event.continuation_sequence_number is None
        assert [one.shard_id for one in event.page.child_shards] == ["shardId-1"]


def test_an_event_never_has_an_iterator():
    body = payload(NextShardIterator="x", ContinuationSequenceNumber="1")
    assert decode_event(body).page.next_shard_iterator is None


@pytest.mark.parametrize("continuation", ["", "abc", "-1", "1.5", "\u0661", 5, 0, [], {}, False])
def test_a_continuation_that_is_no_number_is_not_taken_for_the_end(continuation: object):
    with pytest.raises(MalformedResponseError, match="Nothing of it was used") as raised:
        decode_event(payload(ContinuationSequenceNumber=continuation))
    assert raised.value.retryable
    assert raised.value.operation == "SubscribeToShard"


@given(st.binary(max_size=60) | st.text().map(str.encode))
def test_a_payload_that_is_not_an_event_is_refused(body: bytes):
    with pytest.raises(MalformedResponseError):
        decode_event(body)


def test_only_events_of_the_right_type_carry_records():
    event, name = ":message-type", ":event-type"
    assert carries_records({event: "event", name: "SubscribeToShardEvent"})
    assert not carries_records({event: "event", name: "initial-response"})
    assert not carries_records({event: "event", name: "SomethingNew"})
    assert not carries_records({event: "exception", name: "SubscribeToShardEvent"})
    assert not carries_records({})


def refuse(headers: dict[str, str], body: bytes = b"") -> None:
    error = error_in_frame(Frame(headers, body), "orders/shardId-0", "id-1")
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("code", "kind", "is_retryable"),
    [
        ("KMSAccessDeniedException", EncryptionKeyError, False),
        ("InternalFailureException", InternalServiceError, True),
        ("ResourceInUseException", ResourceInUseError, True),
        ("ResourceNotFoundException", StreamNotFoundError, False),
        ("AccessDeniedException", AccessDeniedError, False),
        ("SomethingNewException", ServiceError, False),
    ],
)
def test_an_exception_has_the_class_that_a_refused_call_has(
    code: str, kind: type[ServiceError], is_retryable: bool
):
    with pytest.raises(ServiceError) as raised:
        refuse({":message-type": "exception", ":exception-type": code}, b'{"message": "Not today"}')
    error = raised.value
    assert type(error) is kind
    assert error.retryable is is_retryable
    assert str(error).startswith("SubscribeToShard of orders/shardId-0: ")
    assert f"{code}: Not today" in str(error)
    assert (error.operation, error.code, error.request_id) == ("SubscribeToShard", code, "id-1")


def test_the_text_of_an_exception_may_be_capitalised():
    headers = {":message-type": "exception", ":exception-type": "ResourceInUseException"}
    with pytest.raises(ResourceInUseError, match="Not today"):
        refuse(headers, b'{"Message": "Not today"}')


def test_a_denied_subscription_names_the_missing_action():
    with pytest.raises(AccessDeniedError, match="kinesis:SubscribeToShard"):
        refuse({":message-type": "exception", ":exception-type": "AccessDeniedException"}, b"{}")


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"null", b'{"message": null}'])
def test_an_exception_without_a_readable_text_is_still_that_exception(body: bytes):
    with pytest.raises(ResourceInUseError):
        refuse({":message-type": "exception", ":exception-type": "ResourceInUseException"}, body)


def test_an_error_that_is_not_in_the_model_is_a_failure_of_the_service():
    headers = {":message-type": "error", ":error-code": "Odd", ":error-message": "It broke"}
    with pytest.raises(InternalServiceError, match="Odd: It broke") as raised:
        refuse(headers)
    assert raised.value.retryable
    with pytest.raises(AccessDeniedError):
        refuse({":message-type": "error", ":error-code": "AccessDenied"})


@pytest.mark.parametrize("name", ["initial-response", "SomethingNew"])
def test_other_events_are_passed_over(name: str):
    refuse({":message-type": "event", ":event-type": name}, b"{}")


@pytest.mark.parametrize("headers", [{}, {":message-type": "telegram"}])
def test_a_frame_of_an_unknown_kind_is_malformed(headers: dict[str, str]):
    with pytest.raises(MalformedResponseError, match="unknown kind"):
        refuse(headers)
