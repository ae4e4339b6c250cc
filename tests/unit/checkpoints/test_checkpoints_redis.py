"""The Redis store: its key, TLS, clusters, and what is said when a server cannot be used."""

from __future__ import annotations

import itertools
import time
import traceback
from typing import TYPE_CHECKING

import pytest
import trustme
from attrs import evolve

from kinesis_publishers import ShardKey
from kinesis_publishers.checkpoints.redis import RedisCheckpointStore
from kinesis_publishers.config import RedisCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    ConfigError,
    RetriesExhaustedError,
    StaleCheckpointError,
)
from kinesis_publishers.model import Checkpoint, CheckpointWrite
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import PASSWORD, RedisServer, free_port
from tests.unit.checkpoints.checkpoint_support import CREATED_AT, KEY, at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITE = CheckpointWrite(
    checkpoint=Checkpoint(shard=KEY, stream_created_at=CREATED_AT, progress=at(1))
)
_NUMBERS = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"prefix-{next(_NUMBERS)}"


def store_on(url: str, prefix: str = "p", application: str = "billing") -> RedisCheckpointStore:
    return RedisCheckpointStore(
        store_context(application), RedisCheckpointConfig(url=url, prefix=prefix)
    )


async def refusal_of(store: RedisCheckpointStore, kind: type[Exception]) -> str:
    """Return what is said when the store is opened and used; never with the password."""

    async def use() -> None:
        async with store:
            await store.load()
            await store.save([WRITE])

    with pytest.raises(kind) as raised:
        await use()
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    assert PASSWORD not in str(store)
    return str(raised.value)


async def test_an_application_is_one_key_on_one_node(
    redis_server: RedisServer, prefix: str
) -> None:
    async with store_on(redis_server.url, prefix) as store:
        await store.save([WRITE])
    assert redis_server.execute(f"KEYS {prefix}*").split() == [f"{prefix}:{{billing}}"]
    fields = redis_server.execute(f"HKEYS {prefix}:{{billing}}").split()
    assert fields == [f"{KEY.stream_arn}/{KEY.shard_id}"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(f":{PASSWORD}@", ":wrong@"), (f":{PASSWORD}@", ""), (f":{PASSWORD}@", "nobody:x@")],
    ids=["password", "no password", "user"],
)
async def test_a_wrong_password_is_said_at_once(
    redis_server: RedisServer, before: str, after: str
) -> None:
    refusal = await refusal_of(store_on(redis_server.url.replace(before, after)), AccessDeniedError)
    assert "check user and password in kinesis.checkpoint.redis.url" in refusal
    assert f"redis://127.0.0.1:{redis_server.port}/0" in refusal


async def test_a_user_without_rights_is_told_which(redis_server: RedisServer, prefix: str) -> None:
    # Without +info the store works; it only does not see how durable the server is.
    rights = "+hgetall +hget +hset +hdel +evalsha +script|load"
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


async def test_a_field_that_is_no_checkpoint_is_named(
    redis_server: RedisServer, prefix: str
) -> None:
    async with store_on(redis_server.url, prefix) as store:
        await store.save([WRITE])
        redis_server.execute(f"HSET {prefix}:{{billing}} {KEY.stream_arn}/{KEY.shard_id} damaged")
        with pytest.raises(CheckpointError, match=f"{KEY.shard_id}.*damaged"):
            await store.load()
        with pytest.raises(StaleCheckpointError, match="another reader has written it"):
            await store.save([WRITE])


async def test_a_replica_is_refused(redis_server: RedisServer, prefix: str) -> None:
    redis_server.execute("REPLICAOF 127.0.0.1 9")
    try:
        refusal = await refusal_of(store_on(redis_server.url, prefix), CheckpointError)
    finally:
        redis_server.execute("REPLICAOF NO ONE")
    assert "name the primary, not a replica of it" in refusal


async def test_a_full_memory_is_said(redis_server: RedisServer, prefix: str) -> None:
    redis_server.execute("CONFIG SET maxmemory 1")
    try:
        refusal = await refusal_of(store_on(redis_server.url, prefix), CheckpointError)
    finally:
        redis_server.execute("CONFIG SET maxmemory 0")
    assert "its memory is full" in refusal


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


async def test_a_script_that_the_server_has_forgotten_is_loaded_again(
    redis_server: RedisServer, prefix: str
) -> None:
    async with store_on(redis_server.url, prefix) as store:
        version = (await store.save([WRITE]))[KEY]
        redis_server.execute("SCRIPT FLUSH")
        version = (await store.save([evolve(WRITE, expected=version)]))[KEY]
        assert (await store.load())[KEY].version == version


async def test_a_server_that_is_not_there_is_an_error_after_the_retries() -> None:
    refusal = await refusal_of(store_on(f"redis://:{PASSWORD}@127.0.0.1:9"), RetriesExhaustedError)
    assert "check that the server is up, and kinesis.checkpoint.redis.url" in refusal


@pytest.mark.parametrize("url", ["redis://:{}@host:port", "redis://:{}@host:99999", "http://:{}@h"])
def test_a_url_that_cannot_work_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="begins with redis:// or rediss://") as raised:
        store_on(url.format(PASSWORD))
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))


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
            while "cluster_state:ok" not in node.execute("CLUSTER INFO"):
                time.sleep(0.02)  # gossip has no other end
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


async def test_another_node_of_a_cluster_that_is_not_known_as_one_is_said(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    refusals = []
    for node in cluster:
        node.execute(f"ACL SETUSER worker on >{PASSWORD} ~* +hgetall +hget +hset +evalsha +script")
        store = store_on(node.url.replace("//:", "//worker:"))
        try:
            async with store:
                await store.load()
        except CheckpointError as error:
            refusals.append(str(error))
    assert len(refusals) == 1
    assert "another node of the cluster has the key" in refusals[0]
