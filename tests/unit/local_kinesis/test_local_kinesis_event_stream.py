"""The frames that are written are those that botocore reads."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer, EventStreamMessage

from kinesis_publishers.testing.local_kinesis.event_feed import (
    INITIAL_RESPONSE,
    event_frame,
    exception_frame,
    with_bad_crc,
)

TYPE = "application/x-amz-json-1.1"


def message_of(frame: bytes) -> EventStreamMessage:
    buffer = EventStreamBuffer()
    buffer.add_data(frame)
    (message,) = list(buffer)
    return message


def test_the_first_frame_says_that_the_call_was_accepted() -> None:
    message = message_of(INITIAL_RESPONSE)
    assert message.headers == {
        ":event-type": "initial-response",
        ":content-type": TYPE,
        ":message-type": "event",
    }
    assert message.payload == b"{}"


@pytest.mark.parametrize(
    ("arguments", "payload"),
    [
        (
            ([b'{"Data":"eA=="}', b'{"Data":""}'], 5, 17),
            {
                "ContinuationSequenceNumber": "5",
                "MillisBehindLatest": 17,
                "Records": [{"Data": "eA=="}, {"Data": ""}],
            },
        ),
        (
            ([], None, 0, [{"ShardId": "s"}]),
            {
                "ContinuationSequenceNumber": None,
                "MillisBehindLatest": 0,
                "ChildShards": [{"ShardId": "s"}],
                "Records": [],
            },
        ),
    ],
)
def test_an_event_says_what_it_was_given(arguments: Any, payload: dict[str, Any]) -> None:
    message = message_of(event_frame(*arguments))
    assert message.headers == {
        ":event-type": "SubscribeToShardEvent",
        ":content-type": TYPE,
        ":message-type": "event",
    }
    assert orjson.loads(message.payload) == payload


def test_an_exception_is_an_error_to_botocore() -> None:
    message = message_of(exception_frame("KMSAccessDeniedException", "no key ☂"))
    assert message.headers == {
        ":exception-type": "KMSAccessDeniedException",
        ":content-type": TYPE,
        ":message-type": "exception",
    }
    assert orjson.loads(message.payload) == {"message": "no key ☂"}
    assert message.to_response_dict()["status_code"] == 400


def test_a_bad_checksum_is_found_in_a_frame_of_the_right_length() -> None:
    frame = event_frame([], 1, 0)
    spoilt = with_bad_crc(frame)
    assert len(spoilt) == len(frame)
    with pytest.raises(ChecksumMismatch):
        message_of(spoilt)
