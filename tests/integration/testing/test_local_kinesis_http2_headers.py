"""Headers that HTTP/2 allows and that no client of Kinesis sends."""

from __future__ import annotations

import pytest

from kinesis_publishers.testing.local_kinesis.answers import Answer
from tests.integration.readers.fanout_reader import until
from tests.integration.testing.front_harness import HOST, running
from tests.integration.testing.http2_client import Received, http2_client

HEADERS = {":method": b"POST", ":scheme": b"https", ":authority": b"local", ":path": b"/"}


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        (HEADERS | {"x-odd": b"\xff\xfe"}, "/"),
        ({":method": b"CONNECT", ":authority": b"local"}, ""),
    ],
    ids=["not text", "no path"],
)
async def test_a_request_with_odd_headers_is_answered(headers: dict[str, bytes], path: str) -> None:
    async with (
        running("https-2") as server,
        http2_client(HOST, server.port, server.ca_bundle) as client,
    ):
        server.script.add_answer(path, Answer(200, b"content"))
        client.http.config.validate_outbound_headers = False
        number = client.http.get_next_available_stream_id()
        client.streams[number] = Received()
        client.http.send_headers(number, list(headers.items()), end_stream=True)
        client.flush()
        await until(lambda: client.streams[number].has_ended)
        assert client.streams[number].body == b"content"
