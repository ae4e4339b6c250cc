"""https as users meet it: boto3, the certificate, the protocols on offer, SubscribeToShard."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest
from botocore.eventstream import EventStreamBuffer
from hyperframe.frame import Frame, SettingsFrame

from kinesis_publishers import Properties
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.readers.fanout_reader import until
from tests.integration.testing.front_harness import DEADLINE_SECONDS, WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_SHARD = "shardId-000000000000"


@pytest.fixture
def secure() -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(Limits.off(), tls=True) as server:
        server.create_stream("orders")
        yield server


def agreed_protocol(server: LocalKinesis, *offered: str, host: str = "127.0.0.1") -> str | None:
    context = ssl.create_default_context(cafile=server.ca_bundle)
    if offered:
        context.set_alpn_protocols(list(offered))
    port = httpx.URL(server.endpoint_url).port
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        context.wrap_socket(connection, server_hostname=host) as wrapped,
    ):
        return wrapped.selected_alpn_protocol()


def test_boto3_subscribes_over_tls(secure: LocalKinesis) -> None:
    secure.put_many("orders", [("k", b"hello")])
    client = secure.client()
    answer = client.subscribe_to_shard(
        ConsumerARN=secure.register_consumer("orders", "reader"),
        ShardId=FIRST_SHARD,
        StartingPosition={"Type": "TRIM_HORIZON"},
    )
    event = next(iter(answer["EventStream"]))
    answer["EventStream"].close()
    client.close()
    assert [r["Data"] for r in event["SubscribeToShardEvent"]["Records"]] == [b"hello"]


def test_a_client_that_trusts_another_authority_keeps_out(secure: LocalKinesis) -> None:
    with (
        LocalKinesis.in_thread(tls=True) as other,
        httpx.Client(verify=ssl.create_default_context(cafile=other.ca_bundle)) as client,
        pytest.raises(httpx.ConnectError, match="certificate verify failed"),
    ):
        client.get(f"{secure.endpoint_url}/_admin/state")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_the_certificate_is_for_every_name_of_the_loopback(secure: LocalKinesis, host: str) -> None:
    assert agreed_protocol(secure, "h2", host=host) == "h2"


def test_the_certificate_is_for_the_host_too() -> None:
    with LocalKinesis.in_thread(tls=True, host="0.0.0.0") as server:
        assert agreed_protocol(server, "h2", host="0.0.0.0") == "h2"


def test_the_properties_name_the_authority_while_the_server_runs(secure: LocalKinesis) -> None:
    properties = secure.properties("orders")
    Properties.parse(properties)
    assert properties["aws.endpoint"] == secure.endpoint_url
    assert properties["aws.cabundle"] == secure.ca_bundle
    with LocalKinesis.in_thread(tls=True) as another:
        path = Path(another.ca_bundle or "")
        assert path.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert not path.exists()


def test_a_port_in_use_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), LocalKinesis.in_thread(tls=True, port=port):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("versions", "offered", "agreed"),
    [
        (("2", "1.1"), ("http/1.1", "h2"), "h2"),
        (("2", "1.1"), ("http/1.1",), "http/1.1"),
        (("1.1",), ("http/1.1", "h2"), "http/1.1"),
        (("2",), ("http/1.1", "h2"), "h2"),
        (("2",), ("http/1.1",), None),
        (("2", "1.1"), (), None),
    ],
)
def test_the_best_common_protocol_is_agreed_on(
    versions: tuple[Any, ...], offered: tuple[str, ...], agreed: str | None
) -> None:
    with LocalKinesis.in_thread(tls=True, http_versions=versions) as server:
        assert agreed_protocol(server, *offered) == agreed


def test_a_client_that_negotiates_nothing_speaks_http_1(secure: LocalKinesis) -> None:
    with httpx.Client(verify=_context_without_alpn(secure)) as client:
        response = client.get(f"{secure.endpoint_url}/_admin/state")
    assert (response.status_code, response.http_version) == (200, "HTTP/1.1")


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_client_may_speak_http_2_without_asking(is_secure: bool) -> None:
    """The SDK for Java does so, with TLS and without."""
    with LocalKinesis.in_thread(tls=is_secure) as server, ExitStack() as opened:
        connection = _connected(server, opened, is_secure=is_secure)
        for piece in (b"P", b"RI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SettingsFrame(0).serialize()):
            connection.sendall(piece)
        frame, _ = Frame.parse_frame_header(memoryview(connection.recv(9)))
        assert isinstance(frame, SettingsFrame)


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_client_that_says_nothing_is_disconnected_when_the_server_closes(
    is_secure: bool,
) -> None:
    with ExitStack() as opened:
        with LocalKinesis.in_thread(tls=is_secure) as server:
            connection = _connected(server, opened, is_secure=is_secure)
            connection.settimeout(DEADLINE_SECONDS)
        with suppress(OSError):
            assert connection.recv(1) == b""


def test_a_server_of_http_2_alone_refuses_other_clients() -> None:
    with (
        LocalKinesis.in_thread(tls=True, http_versions=("2",)) as server,
        httpx.Client(verify=ssl.create_default_context(cafile=server.ca_bundle)) as client,
        pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)),
    ):
        client.get(f"{server.endpoint_url}/_admin/state")


@pytest.mark.parametrize("way", list(WAYS))
async def test_events_of_a_subscription_arrive_as_records_are_put(way: str) -> None:
    is_secure = way.startswith("https")
    async with LocalKinesis(Limits.off(), tls=is_secure, http_versions=(WAYS[way],)) as server:
        server.create_stream("orders")
        request = {
            "ConsumerARN": server.register_consumer("orders", "reader"),
            "ShardId": FIRST_SHARD,
            "StartingPosition": {"Type": "LATEST"},
        }
        verify = ssl.create_default_context(cafile=server.ca_bundle) if is_secure else True
        async with (
            httpx.AsyncClient(
                http1=WAYS[way] == "1.1", http2=WAYS[way] == "2", verify=verify
            ) as client,
            client.stream(
                "POST",
                server.endpoint_url,
                content=orjson.dumps(request),
                headers={"X-Amz-Target": "Kinesis_20131202.SubscribeToShard"},
            ) as response,
        ):
            events = _Events(response)
            assert await events.next_type() == "initial-response"
            for data in (b"first", b"second"):
                server.put_many("orders", [("k", data)])
                assert await events.next_type() == "SubscribeToShardEvent"
            assert server.open_subscriptions("orders") == 1
        assert response.http_version == f"HTTP/{WAYS[way]}"
        assert parsedate_to_datetime(response.headers["date"]) <= server.clock.now()
        await until(lambda: server.open_subscriptions("orders") == 0)


class _Events:
    def __init__(self, response: httpx.Response) -> None:
        self._pieces = response.aiter_raw()
        self._buffer = EventStreamBuffer()

    async def next_type(self) -> str:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (event := next(self._buffer, None)) is None:
                self._buffer.add_data(await anext(self._pieces))
        return str(event.headers[":event-type"])


def _connected(server: LocalKinesis, opened: ExitStack, *, is_secure: bool) -> socket.socket:
    port = httpx.URL(server.endpoint_url).port
    connection = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
    if not is_secure:
        return connection
    context = _context_without_alpn(server)
    return opened.enter_context(context.wrap_socket(connection, server_hostname="127.0.0.1"))


def _context_without_alpn(server: LocalKinesis) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_bundle)
    context.set_alpn_protocols = lambda _: None  # type: ignore[method-assign]
    return context
