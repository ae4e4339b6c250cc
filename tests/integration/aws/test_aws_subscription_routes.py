"""Calls through a proxy and to an IPv6 address; subscriptions over every HTTP client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import StartingPosition
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.errors import ConfigError, ConnectionFailedError
from tests.integration.aws.aws_harness import (
    CARRIERS,
    CONSUMER_ARN,
    INITIAL,
    SHARD,
    Exchange,
    ScriptedService,
    aws_config,
    event,
    http_config,
    server_tls,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    import trustme

    from kinesis_publishers.config import AwsConfig

DEADLINE_SECONDS = 30
WITH_TLS = pytest.mark.parametrize("carrier", [name for name, one in CARRIERS.items() if one[1]])


class Tunnel:
    """Hands every byte to another port, after a CONNECT if it is a proxy."""

    def __init__(self, port: int, *, is_proxy: bool, status: str = "200 OK") -> None:
        self.requests: list[str] = []
        self.port = 0
        self._target = port
        self._is_proxy = is_proxy
        self._status = status
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self, host: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Tunnel]:
        server = await asyncio.start_server(self._connected, host, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if await self._accept(reader, writer):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
                await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
        writer.close()
        self._tasks.discard(task)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self._is_proxy:
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
        return self._status == "200 OK"


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def one_event(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(INITIAL + event(1, "QUJD"))
    await exchange.end()


async def read_all(url: str, ca_bundle: Path, carrier: str) -> list[bytes]:
    position = StartingPosition.trim_horizon()
    payloads: list[bytes] = []
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        AioDataPlane(aws_config(url, ca_bundle), http=http_config(carrier)) as plane,
        plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position) as subscription,
    ):
        while await subscription.wait_for_event() is not None:
            payloads += (await subscription.receive()).page.payloads
    return payloads


async def one_iterator(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(b'{"ShardIterator": "it"}')
    await exchange.end()


async def find_iterator(url: str, ca_bundle: Path | None) -> str:
    async with asyncio.timeout(DEADLINE_SECONDS), AioDataPlane(aws_config(url, ca_bundle)) as plane:
        return await plane.get_shard_iterator(SHARD, StartingPosition.trim_horizon())


@asynccontextmanager
async def proxied(
    monkeypatch: pytest.MonkeyPatch,
    tls: ssl.SSLContext,
    status: str,
    tls_of_proxy: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[ScriptedService, Tunnel]]:
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with ScriptedService(one_event, tls).serve() as service:
        port = int(service.url.rsplit(":", 1)[1])
        tunnel = Tunnel(port, is_proxy=True, status=status)
        async with tunnel.serve("127.0.0.1", tls_of_proxy) as proxy:
            scheme = "http" if tls_of_proxy is None else "https"
            monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://me:secret@127.0.0.1:{proxy.port}")
            yield service, proxy


@WITH_TLS
@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_proxy_of_the_environment_is_asked_for_a_tunnel(
    authority: trustme.CA,
    ca_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    carrier: str,
    is_secure: bool,
) -> None:
    tls = server_tls(authority, ["h2", "http/1.1"])
    of_proxy = server_tls(authority, ["h2", "http/1.1"]) if is_secure else None
    async with proxied(monkeypatch, tls, "200 OK", of_proxy) as (service, proxy):
        assert await read_all(service.url, ca_bundle, carrier) == [b"ABC"]
    request = proxy.requests[0].lower().splitlines()
    assert request[0] == f"connect {service.url.removeprefix('https://')} http/1.1"
    credentials = base64.b64encode(b"me:secret").decode().lower()
    assert f"proxy-authorization: basic {credentials}" in request


async def test_a_proxy_without_a_tunnel_is_given_its_credentials_too(
    ca_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    async with ScriptedService(one_event, None).serve() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("://", "://me:secret@"))
        assert await read_all("http://kinesis.invalid", ca_bundle, "http") == [b"ABC"]
        headers = proxy.exchanges[0].headers
    assert headers["host"] == "kinesis.invalid"
    assert headers["proxy-authorization"] == f"Basic {base64.b64encode(b'me:secret').decode()}"


async def test_other_calls_go_through_the_proxy_too(
    authority: trustme.CA, ca_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = server_tls(authority, ["http/1.1"])
    async with proxied(monkeypatch, tls, "200 OK") as (service, proxy):
        service.script = one_iterator
        assert await find_iterator(service.url, ca_bundle) == "it"
    credentials = base64.b64encode(b"me:secret").decode()
    assert f"Proxy-Authorization: Basic {credentials}" in proxy.requests[0].splitlines()


async def test_a_proxy_that_refuses_another_call_is_a_failed_connection(
    authority: trustme.CA, ca_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = server_tls(authority, ["http/1.1"])
    async with proxied(monkeypatch, tls, "407 No") as (service, _):
        with pytest.raises(ConnectionFailedError, match=r"orders/shardId-0") as raised:
            await find_iterator(service.url, ca_bundle)
        assert "secret" not in str(raised.value)


async def test_a_certificate_that_is_not_trusted_is_a_failed_connection(
    authority: trustme.CA,
) -> None:
    tls = server_tls(authority, ["http/1.1"])
    async with ScriptedService(one_iterator, tls).serve() as service:
        with pytest.raises(ConnectionFailedError, match="certificate"):
            await find_iterator(service.url, None)
        assert service.exchanges == []


@WITH_TLS
async def test_a_proxy_that_refuses_is_a_failed_connection(
    authority: trustme.CA, ca_bundle: Path, monkeypatch: pytest.MonkeyPatch, carrier: str
) -> None:
    tls = server_tls(authority, ["h2", "http/1.1"])
    async with proxied(monkeypatch, tls, "407 No") as (service, proxy):
        with pytest.raises(ConnectionFailedError, match=r"orders/shardId-0") as raised:
            await read_all(service.url, ca_bundle, carrier)
        assert "secret" not in str(raised.value)
        assert service.exchanges == []
        assert proxy.requests


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_an_endpoint_may_be_an_ipv6_address(
    authority: trustme.CA, ca_bundle: Path, carrier: str
) -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    tls = server_tls(authority, ["h2", "http/1.1"], host="::1") if CARRIERS[carrier][1] else None
    async with ScriptedService(one_event, tls).serve() as service:
        scheme, _, port = service.url.replace("/", "").split(":")
        async with Tunnel(int(port), is_proxy=False).serve("::1") as tunnel:
            url = f"{scheme}://[::1]:{tunnel.port}"
            assert await read_all(url, ca_bundle, carrier) == [b"ABC"]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


_UNUSABLE = {
    "a number sign": ({"HTTP_PROXY": "http://bob:1#SECRET@proxy:9"}, "HTTP_PROXY is not a URL"),
    "a slash": ({"HTTP_PROXY": "bob:a/SECRET@proxy:9"}, "HTTP_PROXY is not a URL"),
    "no port": ({"HTTP_PROXY": "http://proxy:SECRET"}, "HTTP_PROXY is not a URL"),
    "a bracket": ({"HTTP_PROXY": "http://bob:[SECRET@proxy:9"}, "HTTP_PROXY is not a URL"),
    "SOCKS": ({"HTTP_PROXY": "socks5h://bob:SECRET@proxy:9"}, "SOCKS proxies are not supported"),
    "a network": (
        {"HTTP_PROXY": "http://bob:SECRET@proxy:9", "NO_PROXY": "example.com, 127.0.0.0/8"},
        "NO_PROXY has 127.0.0.0/8, .*: add 127.0.0.1,",
    ),
}


@pytest.mark.parametrize("plane", [AioDataPlane, Boto3ControlPlane])
@pytest.mark.parametrize("unusable", _UNUSABLE)
async def test_a_proxy_that_cannot_be_used_is_refused_before_any_call(
    monkeypatch: pytest.MonkeyPatch, plane: type, unusable: str
) -> None:
    variables, problem = _UNUSABLE[unusable]
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=problem) as raised:
        await load(plane, aws_config("http://127.0.0.1:9", None))
    assert "SECRET" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("plane", [AioDataPlane, Boto3ControlPlane])
async def test_a_region_that_cannot_exist_is_refused_before_any_call(plane: type) -> None:
    config = evolve(aws_config("http://127.0.0.1:9", None), region="us-east1")
    await load(plane, config)  # of an emulator it may be one
    with pytest.raises(ConfigError, match="AWS has no region 'us-east1'"):
        await load(plane, evolve(config, endpoint_url=None))


async def load(plane: type, config: AwsConfig) -> None:
    """Open a plane and the client that it needs, without a call."""
    async with plane(config) as opened:
        if isinstance(opened, Boto3ControlPlane):
            await opened.load()
