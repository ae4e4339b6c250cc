"""The Redis store: its key, TLS, clusters, and what is said when a server cannot be used."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import trustme
from attrs import evolve
from redis._parsers.base import BaseParser

from kinesis_publishers import ShardKey
from kinesis_publishers.checkpoints.redis import _MEANINGS, RedisCheckpointStore
from kinesis_publishers.checkpoints.versions import failure_of
from kinesis_publishers.config import RedisCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    RetriesExhaustedError,
)
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import PASSWORD, RedisServer, free_port
from tests.unit.checkpoints.checkpoint_support import KEY, WRITE, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERS = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"prefix-{next(_NUMBERS)}"


def store_on(url: str, prefix: str = "p", application: str = "billing") -> RedisCheckpointStore:
    return RedisCheckpointStore(
        store_context(application), RedisCheckpointConfig(url=url, prefix=prefix)
    )


async def test_an_application_is_one_key_on_one_node(
    redis_server: RedisServer, prefix: str
) -> None:
    async with store_on(redis_server.url, prefix) as store:
        await store.save([WRITE])
    assert redis_server.execute(f"KEYS {prefix}*").split() == [f"{prefix}:{{billing}}"]
    fields = redis_server.execute(f"HKEYS {prefix}:{{billing}}").split()
    assert fields == [f"{KEY.stream_arn}/{KEY.shard_id}"]


@pytest.mark.parametrize("user", ["", "nobody:x@"], ids=["no password", "another user"])
async def test_a_wrong_user_is_said_at_once(redis_server: RedisServer, user: str) -> None:
    url = redis_server.url.replace(f":{PASSWORD}@", user)
    refusal = await refusal_of(store_on(url), AccessDeniedError)
    assert "check user and password in kinesis.checkpoint.redis.url" in refusal


async def test_a_user_without_rights_is_told_which(redis_server: RedisServer, prefix: str) -> None:
    rights = "+hgetall +hmget +hget +hset +hdel +eval +info"
    redis_server.execute(f"ACL SETUSER worker on >{PASSWORD} ~{prefix}:* {rights}")
    url = redis_server.url.replace("//:", "//worker:")
    async with store_on(url, prefix) as store:
        await store.remove(await store.save([WRITE]))
    redis_server.execute("ACL SETUSER worker -hset")
    assert "+hset" in await refusal_of(store_on(url, prefix), AccessDeniedError)
    refusal = await refusal_of(store_on(url, "another"), AccessDeniedError)
    assert "allow the user +hgetall" in refusal


async def test_the_key_of_another_program_is_refused(
    redis_server: RedisServer, prefix: str
) -> None:
    redis_server.execute(f"SET {prefix}:{{billing}} value")
    refusal = await refusal_of(store_on(redis_server.url, prefix), CheckpointError)
    assert "set kinesis.checkpoint.redis.prefix to another" in refusal
    redis_server.execute(f"DEL {prefix}:{{billing}}")
    redis_server.execute(
        f"EVAL \"redis.call('HSET', KEYS[1], 'a', '\\\\255')\" 1 {prefix}:{{billing}}"
    )
    refusal = await refusal_of(store_on(redis_server.url, prefix), CheckpointError)
    assert "another program uses the key" in refusal


async def test_a_field_that_is_no_checkpoint_is_named(
    redis_server: RedisServer, prefix: str
) -> None:
    async with store_on(redis_server.url, prefix) as store:
        await store.save([WRITE])
        redis_server.execute(f"HSET {prefix}:{{billing}} {KEY.stream_arn}/{KEY.shard_id} damaged")
        with pytest.raises(CheckpointError, match=f"{KEY.shard_id}.*damaged"):
            await store.load()
        with pytest.raises(CheckpointError, match=f"{KEY.shard_id}.*damaged"):
            await store.save([WRITE])


@pytest.mark.parametrize(
    "said",
    [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "BUSY Redis is busy running a script.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
        "READONLY You can't write against a read only replica.",
        "ERR Error running: @user_script:7: -READONLY You can't write against a read only replica.",
        "ERR max number of clients reached",
    ],
)
async def test_what_a_server_says_while_it_cannot_be_used_yet_passes(said: str) -> None:
    """In the words of the server's source, as the client library takes them apart."""
    error = BaseParser.parse_error(said)
    assert failure_of("it", error, getattr(error, "status_code", None), _MEANINGS).retryable


async def test_a_server_that_may_lose_checkpoints_is_warned_of(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with store_on(redis_server.url, prefix):
        assert caplog.text == ""
    redis_server.execute("CONFIG SET appendonly no")
    redis_server.execute("CONFIG SET maxmemory-policy allkeys-lru")
    try:
        async with store_on(redis_server.url, prefix):
            pass
    finally:
        redis_server.execute("CONFIG SET maxmemory-policy noeviction")
        redis_server.execute("CONFIG SET appendonly yes")
    assert "appendonly is no and maxmemory-policy is allkeys-lru" in caplog.text


async def test_rediss_checks_the_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server, port = RedisServer(), free_port()
    certificate = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    pair = server.own("pair.pem", certificate.bytes())
    server.options = ("--tls-port", str(port), "--tls-auth-clients", "no")
    server.options += ("--tls-cert-file", pair, "--tls-key-file", pair)
    url = f"rediss://:{PASSWORD}@127.0.0.1:{port}"
    with server:
        async with store_on(f"{url}?ssl_ca_certs={tmp_path}/ca.pem") as store:
            assert set(await store.save([WRITE])) == {KEY}
        refusal = await refusal_of(store_on(url), RetriesExhaustedError)
    assert "CERTIFICATE_VERIFY_FAILED" in refusal


@pytest.fixture
def cluster() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two nodes, each with half of the slots."""
    with (
        RedisServer("--cluster-enabled", "yes") as first,
        RedisServer("--cluster-enabled", "yes") as second,
    ):
        first.execute("CLUSTER ADDSLOTSRANGE 0 8191")
        second.execute("CLUSTER ADDSLOTSRANGE 8192 16383")
        first.execute(f"CLUSTER MEET 127.0.0.1 {second.port}")
        for node in (first, second):
            node.wait_until("cluster_state:ok", "CLUSTER INFO")
        yield first, second


async def test_each_node_of_a_cluster_leads_to_the_key(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    applications = ("billing", "reports", "audit", "search")
    for number, node in enumerate(cluster):
        for application in applications:
            key = ShardKey(KEY.stream_arn, f"shardId-{number:012}")
            write = evolve(WRITE, checkpoint=evolve(WRITE.checkpoint, shard=key))
            async with store_on(node.url, application=application) as store:
                await store.save([write])
                assert len(await store.load()) == number + 1
    held = [node.execute("KEYS *").split() for node in cluster]
    assert sorted(held[0] + held[1]) == sorted(f"p:{{{one}}}" for one in applications)
    assert all(held), "every application was on the same node"


async def test_the_rights_that_a_cluster_needs_are_named(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    for node in cluster:
        node.execute(f"ACL SETUSER worker on >{PASSWORD} ~* +@all -cluster")
    url = cluster[0].url.replace("//:", "//worker:")
    assert "on a cluster +cluster, +command" in await refusal_of(store_on(url), AccessDeniedError)
