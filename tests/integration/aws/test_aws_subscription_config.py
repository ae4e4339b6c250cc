"""Which protocol and which client carry subscriptions, whom they trust, and what cannot work."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trustme
from attrs import evolve

from kinesis_publishers import StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import (
    AwsConfig,
    HttpVersion,
    SubscriptionHttpConfig,
)
from kinesis_publishers.errors import ConnectionFailedError, InvalidOptionError
from tests.integration.aws.aws_harness import (
    CONSUMER_ARN,
    SHARD,
    Exchange,
    ScriptedService,
    aws_config,
    server_tls,
)

if TYPE_CHECKING:
    from pathlib import Path


async def accept(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.wait_closed()


def service(authority: trustme.CA, *protocols: str) -> ScriptedService:
    return ScriptedService(accept, server_tls(authority, list(protocols)))


async def subscribe(aws: AwsConfig, http: SubscriptionHttpConfig) -> None:
    async with (
        AioDataPlane(aws, http=http) as plane,
        plane.subscribe_to_shard(SHARD, CONSUMER_ARN, StartingPosition.trim_horizon()),
    ):
        pass


def spoke_http_2(running: ScriptedService) -> bool:
    return ":authority" in running.exchanges[-1].headers


async def test_auto_takes_http_2_where_it_is_offered_and_1_1_elsewhere(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    http = SubscriptionHttpConfig()
    for protocols, expected in ((("h2", "http/1.1"), True), (("http/1.1",), False)):
        async with service(authority, *protocols).serve() as running:
            await subscribe(aws_config(running.url, ca_bundle), http)
            assert spoke_http_2(running) is expected


async def test_http_2_that_is_demanded_but_not_offered_says_what_to_set(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    http = SubscriptionHttpConfig(version=HttpVersion.HTTP_2)
    async with service(authority, "http/1.1").serve() as running:
        with pytest.raises(InvalidOptionError, match=r"kinesis\.stream\.efo\.http-version"):
            await subscribe(aws_config(running.url, ca_bundle), http)


def test_http_2_without_tls_is_refused_before_any_call() -> None:
    http = SubscriptionHttpConfig(version=HttpVersion.HTTP_2)
    with pytest.raises(InvalidOptionError, match="does not offer HTTP/2"):
        AioDataPlane(aws_config("http://127.0.0.1:1", None), http=http)


async def test_an_endpoint_that_the_environment_names_is_checked_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://127.0.0.1:1")
    aws = evolve(aws_config("", None), endpoint_url=None)
    plane = AioDataPlane(aws, http=SubscriptionHttpConfig(version=HttpVersion.HTTP_2))
    with pytest.raises(InvalidOptionError, match="does not offer HTTP/2"):
        await plane.__aenter__()


@pytest.mark.parametrize("version", [HttpVersion.AUTO, HttpVersion.HTTP_1_1])
async def test_a_certificate_without_an_authority_is_refused(
    authority: trustme.CA, tmp_path: Path, version: HttpVersion
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    http = SubscriptionHttpConfig(version=version)
    async with service(authority, "h2", "http/1.1").serve() as running:
        for bundle in (other, None):
            with pytest.raises(ConnectionFailedError):
                await subscribe(aws_config(running.url, bundle), http)
        assert running.exchanges == []


async def test_the_certificates_of_the_environment_count(
    authority: trustme.CA,
    ca_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ca_bundle))
    async with service(authority, "h2").serve() as running:
        http = SubscriptionHttpConfig()
        await subscribe(aws_config(running.url, None), http)
        assert spoke_http_2(running)


@pytest.mark.parametrize("contents", [None, "", "no certificate"])
async def test_a_file_of_certificates_that_cannot_be_used_is_named(
    tmp_path: Path, contents: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if contents is not None:
        path.write_text(contents)
    plane = AioDataPlane(aws_config("https://127.0.0.1:1", path))
    with pytest.raises(InvalidOptionError, match=r"ca\.pem.*aws\.cabundle"):
        await plane.__aenter__()


def test_polling_loads_no_client_of_subscriptions() -> None:
    code = """
import asyncio, sys
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig

async def open_and_close():
    async with AioDataPlane(AwsConfig(region="us-east-1")):
        pass

asyncio.run(open_and_close())
assert not "h2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
