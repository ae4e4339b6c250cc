"""Our decoder of event streams against botocore's, whole, cut anywhere and damaged."""

from __future__ import annotations

import struct
import time
import zlib
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws.event_stream import EventStreamDecoder
from kinesis_publishers.errors import MalformedResponseError
from kinesis_publishers.testing.local_kinesis.event_feed import encode_frame

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
# Header values as the type and the bytes after it.
VALUES = st.one_of(
    st.sampled_from([b"\x00", b"\x01"]),
    st.binary(min_size=1, max_size=1).map(lambda data: b"\x02" + data),
    st.binary(min_size=2, max_size=2).map(lambda data: b"\x03" + data),
    st.binary(min_size=4, max_size=4).map(lambda data: b"\x04" + data),
    st.binary(min_size=8, max_size=8).map(lambda data: b"\x05" + data),
    st.binary(max_size=30).map(lambda data: b"\x06" + struct.pack("!H", len(data)) + data),
    NAMES.map(str.encode).map(lambda data: b"\x07" + struct.pack("!H", len(data)) + data),
    st.binary(min_size=8, max_size=8).map(lambda data: b"\x08" + data),
    st.binary(min_size=16, max_size=16).map(lambda data: b"\x09" + data),
)


def frame(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    body = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + payload
    return body + struct.pack("!I", zlib.crc32(body))


FRAMES = st.builds(
    lambda headers, payload: frame(
        b"".join(bytes([len(name.encode())]) + name.encode() + value for name, value in headers),
        payload,
    ),
    st.lists(st.tuples(NAMES, VALUES), max_size=4, unique_by=lambda header: header[0]),
    st.binary(max_size=300),
)
BODIES = st.lists(FRAMES, max_size=4).map(b"".join)


def decode_with_botocore(body: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Return the frames before the first one that botocore does not accept."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    frames = []
    try:
        for message in buffer:
            strings = {k: v for k, v in message.headers.items() if isinstance(v, str)}
            frames.append((strings, message.payload))
    except (ParserError, KeyError, ValueError, IndexError, struct.error):
        pass
    return frames


def decode(chunks: list[bytes]) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
    """Return the frames that come out, and whether something damaged was found behind them."""
    decoder, frames = EventStreamDecoder("the stream"), []
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            while (taken := decoder.take()) is not None:
                frames.append((dict(taken.headers), taken.payload))
    except MalformedResponseError:
        return frames, True
    return frames, False


def cut(body: bytes, data: st.DataObject) -> list[bytes]:
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


@given(BODIES, st.data())
def test_frames_are_what_botocore_makes_of_them_however_they_are_cut(
    body: bytes, data: st.DataObject
):
    # botocore gives byte arrays as bytes; a string is the only kind that both call one.
    assert decode(cut(body, data)) == (decode_with_botocore(body), False)


@given(BODIES.filter(len), st.data())
def test_nothing_comes_out_that_botocore_would_refuse(body: bytes, data: st.DataObject):
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged_body = bytes(damaged)
    frames, _ = decode(cut(damaged_body, data))
    accepted = decode_with_botocore(damaged_body)
    assert frames == accepted[: len(frames)]


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_garbage_is_refused_or_waited_for(chunks: list[bytes]):
    frames, _ = decode(chunks)
    assert frames == decode_with_botocore(b"".join(chunks))[: len(frames)]


@given(st.dictionaries(NAMES, NAMES, max_size=4), st.binary(max_size=300))
def test_an_encoded_frame_is_decoded_to_itself(headers: dict[str, str], payload: bytes):
    body = encode_frame(headers, payload)
    assert decode([body]) == ([(headers, payload)], False)
    assert decode_with_botocore(body) == [(headers, payload)]


def test_the_head_is_known_before_the_payload_is_there():
    body = encode_frame({":event-type": "x"}, bytes(1000))
    decoder = EventStreamDecoder("the stream")
    decoder.feed(body[: len(body) - 1004])
    head = decoder.peek()
    assert head is not None
    assert (head.headers, head.payload_bytes) == ({":event-type": "x"}, 1000)
    assert decoder.take() is None
    decoder.feed(body[len(body) - 1004 :])
    assert decoder.take() is not None
    assert not decoder.is_inside_frame


@pytest.mark.parametrize(
    ("total", "headers"),
    [(15, 0), (16, 1), (16, 2**32 - 1), (2**32 - 1, 0), (200_000, 131_073), (0, 0)],
)
def test_lengths_that_cannot_be_are_refused_at_once(total: int, headers: int):
    lengths = struct.pack("!II", total, headers)
    decoder = EventStreamDecoder("SubscribeToShard of orders/shard")
    decoder.feed(lengths + struct.pack("!I", zlib.crc32(lengths)))
    with pytest.raises(MalformedResponseError, match=r"orders/shard.*impossible") as raised:
        decoder.peek()
    assert raised.value.retryable


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01a\x0a",  # a type that does not exist
        b"\x01a",  # no type
        b"\x05a",  # a name that is longer than the headers
        b"\x01a\x07\x00",
        b"\x01a\x04\x00",
        b"\x01\xff\x00",  # a name that is not UTF-8
        b"\x01a\x07\x00\x01\xff",
        b"\x01a\x00\x01a\x01",  # a name twice
    ],
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes):
    assert decode([frame(headers, b"payload")]) == ([], True)


def test_a_damaged_frame_stays_where_it_is():
    good, bad = encode_frame({}, b"good"), bytearray(encode_frame({}, b"bad"))
    bad[-5] ^= 1
    decoder = EventStreamDecoder("the stream")
    decoder.feed(good + bytes(bad) + good)
    first = decoder.take()
    assert first is not None
    assert first.payload == b"good"
    for _ in range(2):
        with pytest.raises(MalformedResponseError, match="checksum of a frame is wrong"):
            decoder.take()


def seconds_to_decode(payload_bytes: int, chunk_bytes: int) -> float:
    body = encode_frame({}, bytes(payload_bytes))
    chunks = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]
    start = time.process_time()
    frames, _ = decode(chunks)
    assert len(frames) == 1
    return time.process_time() - start


def test_a_large_frame_in_small_pieces_costs_what_its_length_costs():
    # 16 MiB in pieces of 256 bytes: copying what is there for each of them would copy 550 GB.
    assert seconds_to_decode(16 * 1024 * 1024, 256) < 10
