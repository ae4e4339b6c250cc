"""The exchange over HTTP/2, with h2 as the service, and what h2 does not send."""

from __future__ import annotations

from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws.carriers.http2_frames import WINDOW_BYTES, Exchange

REQUEST = {":method": "POST", ":scheme": "https", ":authority": "k", ":path": "/"}
OK = [(":status", "200"), ("x-amzn-requestid", "id-1")]
SIZES = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)


class Service:
    """The other end, up to the request."""

    def __init__(self, exchange: Exchange, body: bytes = b"{}", **headers: str) -> None:
        self.state = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.state.initiate_connection()
        exchange.request({**REQUEST, **headers}, body)
        self.events = self.state.receive_data(exchange.to_send())
        exchange.receive(self.state.data_to_send())
        self.state.receive_data(exchange.to_send())

    def of_type(self, kind: type[h2.events.Event]) -> list[h2.events.Event]:
        return [one for one in self.events if isinstance(one, kind)]


def answered() -> Exchange:
    exchange = Exchange()
    exchange.receive(_headers(OK))
    return exchange


def _headers(fields: list[tuple[str, str]], *flags: str) -> bytes:
    return HeadersFrame(1, Encoder().encode(fields), flags=["END_HEADERS", *flags]).serialize()


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        yield data[at : at + size]
        at += size


@given(pieces=SIZES, arrivals=SIZES, paddings=st.lists(st.integers(0, 255), min_size=1))
def test_the_body_comes_whole_however_it_is_cut(
    pieces: list[int], arrivals: list[int], paddings: list[int]
) -> None:
    exchange = Exchange()
    service = Service(exchange)
    service.state.send_headers(1, OK)
    sent = b""
    for number, size in enumerate(pieces):
        payload = bytes([number]) * min(size, service.state.local_flow_control_window(1) // 2)
        for start in range(0, len(payload), 16_000):
            padding = paddings[(number + start) % len(paddings)]
            service.state.send_data(1, payload[start : start + 16_000], pad_length=padding or None)
        sent += payload
        service.state.ping(b"12345678")
    service.state.send_headers(1, [("trailer", "x")], end_stream=True)
    received = b""
    for arrival in cut(service.state.data_to_send(), arrivals):
        exchange.receive(arrival)
        received += exchange.take()
    assert (exchange.status, exchange.headers) == (200, dict(OK[1:]))
    assert received == sent
    assert exchange.has_ended
    # It is correct for h2, the answers to pings and the updates of windows included.
    pongs = service.state.receive_data(exchange.to_send())
    assert sum(isinstance(one, h2.events.PingAckReceived) for one in pongs) == len(pieces)


def test_a_service_may_send_on_when_what_it_sent_has_been_taken() -> None:
    exchange = Exchange()
    service = Service(exchange)
    service.state.send_headers(1, OK)
    for _ in range(3):
        assert service.state.local_flow_control_window(1) == WINDOW_BYTES
        for _ in range(WINDOW_BYTES // 16_384):
            service.state.send_data(1, bytes(16_384))
        assert service.state.local_flow_control_window(1) == 0
        exchange.receive(service.state.data_to_send())
        assert exchange.to_send() == b""
        assert len(exchange.take()) == WINDOW_BYTES
        service.state.receive_data(exchange.to_send())


def test_a_request_larger_than_a_frame_is_sent_in_several() -> None:
    service = Service(Exchange(), b"b" * 40_000, **{"x-amz-security-token": "é" * 30_000})
    (request,) = service.of_type(h2.events.RequestReceived)
    assert isinstance(request, h2.events.RequestReceived)
    assert dict(request.headers) == {**REQUEST, "x-amz-security-token": "é" * 30_000}
    received = service.of_type(h2.events.DataReceived)
    assert b"".join(one.data for one in received if isinstance(one, h2.events.DataReceived)) == (
        b"b" * 40_000
    )
    assert service.of_type(h2.events.StreamEnded)


def test_headers_may_be_provisional_padded_and_in_pieces() -> None:
    exchange, block = Exchange(), Encoder().encode(OK)
    first = HeadersFrame(1, block[:3], flags=["PADDED", "PRIORITY"])
    first.pad_length, first.stream_weight = 9, 3
    exchange.receive(_headers([(":status", "103")]))
    assert exchange.status is None
    for frame in (
        first,
        ContinuationFrame(1, block[3:5]),
        ContinuationFrame(1, block[5:], flags=["END_HEADERS"]),
    ):
        assert exchange.status is None
        exchange.receive(frame.serialize())
    assert (exchange.status, exchange.headers) == (200, {"x-amzn-requestid": "id-1"})


def test_an_answer_may_end_with_its_headers_or_an_empty_frame() -> None:
    exchange = Exchange()
    exchange.receive(_headers(OK, "END_STREAM"))
    assert exchange.has_ended
    exchange = answered()
    exchange.receive(DataFrame(1, b"", flags=["END_STREAM"]).serialize())
    assert exchange.has_ended


def _push() -> Frame:
    return PushPromiseFrame(1, promised_stream_id=2, flags=["END_HEADERS"])


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (RstStreamFrame(1, 2), "reset the stream with code 2"),
        (GoAwayFrame(0, last_stream_id=1, error_code=11), "ended the connection with code 11"),
        (GoAwayFrame(0, last_stream_id=0), "ended the connection with code 0"),
        (_push(), "a push"),
        (HeadersFrame(1, Encoder().encode([("a", "b")]), flags=["END_HEADERS"]), "the status ''"),
        (DataFrame(1, bytes(WINDOW_BYTES + 1)), "a frame of 262,145 bytes"),
    ],
    ids=["reset", "goaway", "not begun", "push", "no status", "too long"],
)
def test_what_ends_an_exchange_before_its_end_is_an_error(frame: Frame, problem: str) -> None:
    exchange = Exchange()
    with pytest.raises(ConnectionError, match=problem):
        exchange.receive(frame.serialize())


def test_endless_headers_are_an_error() -> None:
    exchange = Exchange()
    exchange.receive(HeadersFrame(1, b"").serialize())
    piece = ContinuationFrame(1, bytes(200_000)).serialize()
    exchange.receive(piece)
    with pytest.raises(ConnectionAbortedError, match="headers of 400,000 bytes"):
        exchange.receive(piece)


def test_what_comes_before_an_error_is_taken() -> None:
    exchange = answered()
    data = DataFrame(1, b"abc").serialize() + RstStreamFrame(1, 2).serialize()
    with pytest.raises(ConnectionResetError):
        exchange.receive(data)
    assert exchange.take() == b"abc"


@pytest.mark.parametrize(
    "frame",
    [
        GoAwayFrame(0, last_stream_id=1).serialize(),
        b"\x00\x00\x01\xbe\x00\x00\x00\x00\x01?",
        PingFrame(0, b"12345678", flags=["ACK"]).serialize(),
    ],
    ids=["goaway", "unknown", "ack"],
)
def test_other_frames_do_not_disturb(frame: bytes) -> None:
    exchange = answered()
    exchange.receive(frame + DataFrame(1, b"x", flags=["END_STREAM"]).serialize())
    assert exchange.take() == b"x"
    assert exchange.has_ended
    assert exchange.to_send() == b""


@pytest.mark.parametrize("frame", [RstStreamFrame(1, 0), GoAwayFrame(0, 0, 1)])
def test_what_follows_the_end_is_no_error(frame: Frame) -> None:
    exchange = answered()
    exchange.receive(DataFrame(1, b"", flags=["END_STREAM"]).serialize() + frame.serialize())
    assert exchange.take() == b""
