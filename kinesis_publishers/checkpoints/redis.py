"""Checkpoints in Redis, Valkey or what speaks their protocol: needs the extra ``redis``."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from redis import RedisError
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields, stored_version
from kinesis_publishers.checkpoints.versions import (
    Change,
    Meaning,
    Refusal,
    Storage,
    StoreCalls,
    VersionedStore,
    failure_of,
    place_of,
)
from kinesis_publishers.config import Properties, RedisCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    ConnectionFailedError,
    InternalServiceError,
    InvalidOptionError,
    ResourceInUseError,
)
from kinesis_publishers.model import ShardKey, StoredCheckpoint
from kinesis_publishers.tasks import cancellable

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)

_URL_KEY: Final = RedisCheckpointConfig.url.full_key
_PREFIX_KEY: Final = RedisCheckpointConfig.prefix.full_key
# A slower heartbeat would not keep a lease.
_CALL_SECONDS: Final = 10.0

# For each field: its name, expected value and new value. An empty text stands for no field. The
# server does nothing else meanwhile: half a millisecond for 500 fields.
_REPLACE: Final = """\
local others = {}
for i = 1, #ARGV, 3 do
  local name, expected, value = unpack(ARGV, i, i + 2)
  if (redis.call('HGET', KEYS[1], name) or '') ~= expected then
    table.insert(others, (i - 1) / 3)
  elseif value == '' then
    redis.call('HDEL', KEYS[1], name)
  else
    redis.call('HSET', KEYS[1], name, value)
  end
end
return others
"""

_ERRORS: Final = (RedisError, RedisClusterException, OSError, TypeError, ValueError)
# Matched by class, as some extend others, and by text: before Redis 7, the reason why a script
# failed stands there alone.
_MEANINGS: Final[tuple[Meaning, ...]] = (
    ("AuthenticationError", AccessDeniedError, f"check user and password in {_URL_KEY}"),
    (
        # redis-py raises the last for a refused CLUSTER SLOTS.
        "permission|user executing the script|Cluster mode is not enabled",
        AccessDeniedError,
        (
            "allow the user +hgetall, +hmget, +hget, +hset, +hdel, +eval, +info (and on a cluster "
            "+cluster, +command)"
        ),
    ),
    (
        "READONLY|ReadOnlyError|read only replica",
        InternalServiceError,
        f"it takes no writes: after a failover that passes; name the primary in {_URL_KEY}",
    ),
    (
        "wrong kind of value|UnicodeDecodeError",
        CheckpointError,
        f"another program uses the key: set {_PREFIX_KEY} to another",
    ),
    (
        "OOM|OutOfMemoryError|'maxmemory'",
        InternalServiceError,
        "its memory is full: raise maxmemory, or remove other keys",
    ),
    (
        # Also while the server loads its files, and for a refused certificate.
        " (ConnectionError|TimeoutError|RedisClusterException|OSError) ",
        ConnectionFailedError,
        f"check that the server is up, and {_URL_KEY}",
    ),
    (
        # A cluster without a quorum, a slot that moves; a script that runs, or a failing disk.
        "(?i)clusterdown|tryagain|masterdown|busy|misconf|noreplicas",
        ResourceInUseError,
        "it takes no writes for now",
    ),
    # From redis-py, which gets all parameters of the URL.
    ("TypeError|ValueError", InvalidOptionError, f"remove or correct the parameter in {_URL_KEY}"),
    ("", CheckpointError, f"check {_URL_KEY}, and the log of the server"),
)


class RedisHash(Storage):
    """The fields of a hash, on a server or a cluster."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key
        self._client: Any = None
        self._calls: StoreCalls

    def __str__(self) -> str:
        return f"the key {self._key} of {place_of(self._url)}"

    async def open(self, calls: StoreCalls) -> None:
        self._calls = calls
        settings = await self._call(self._connect)
        risks = ["appendonly is no"] if settings.get("aof_enabled") == 0 else []
        if (policy := str(settings.get("maxmemory_policy", ""))).startswith("allkeys"):
            risks.append(f"maxmemory-policy is {policy}")
        if risks:
            _LOGGER.warning(
                "Checkpoints in %s may get lost, because %s: set appendonly to yes and "
                "maxmemory-policy to noeviction.",
                self,
                " and ".join(risks),
            )

    async def _connect(self) -> dict[str, Any]:
        """Make a client of the server, or of its cluster; return what it says of itself."""
        async with _client_of(Redis, self._url) as client:
            settings: dict[str, Any] = await client.info()
        kind = RedisCluster if settings.get("cluster_enabled") else Redis
        self._client = _client_of(kind, self._url)
        return settings

    async def disconnect(self) -> None:
        if self._client is not None:
            # A server that has vanished does not say goodbye.
            with suppress(*_ERRORS):
                await self._client.aclose()

    async def ask(self, question: Callable[[Any, str], Awaitable[Any]]) -> Any:
        """Return the answer of the client to a question about the key."""
        return await self._call(lambda: question(self._client, self._key))

    async def _call(self, call: Callable[[], Awaitable[_T]]) -> _T:
        async def attempt() -> _T:
            try:
                # Otherwise a worker that is asked to stop would continue, with its leases.
                return await cancellable(call)
            except _ERRORS as error:
                code = getattr(error, "status_code", None)
                raise failure_of(self, error, code, _MEANINGS) from error

        return await self._calls.make(attempt)


class RedisCheckpointStore(VersionedStore):
    """Keeps checkpoints as fields of a hash per application, one per shard.

    A batch is a read, and one script that replaces the fields that are still as they were read. The
    others are read again.

    A write is as durable as Redis is configured to be, which is less than other stores promise.
    Without ``appendonly yes`` a crash loses everything since the last snapshot; with it,
    ``appendfsync everysec`` loses about a second, and only ``always`` nothing. Replication is
    asynchronous: a promoted replica may lack the last writes. Lost checkpoints repeat records, and
    after a lost lease two workers read a shard until the renewal of one is refused; no record is
    left out.
    """

    storage: RedisHash

    def __init__(self, context: CheckpointStoreContext, config: RedisCheckpointConfig) -> None:
        # On a cluster, the part in braces decides which node has it.
        key = f"{config.prefix}:{{{context.application}}}"
        super().__init__(context, RedisHash(config.url or "", key))

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context, RedisCheckpointConfig.from_properties(properties))

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found = await self.storage.ask(lambda client, key: client.hgetall(key))
        shards = {name: ShardKey(*name.rpartition("/")[::2]) for name in found}
        return {
            shard: stored_from_fields(shard, self._fields_in(name, found[name]), where=self)
            for name, shard in shards.items()
        }

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        now = self._context.clock.now()
        names = [f"{one.shard.stream_arn}/{one.shard.shard_id}" for one, _ in changes]
        found = await self.storage.ask(lambda client, key: client.hmget(key, names))
        refusals: list[Refusal] = []
        accepted: list[Change] = []
        arguments: list[str] = []
        for (attempt, checkpoint), name, text in zip(changes, names, found, strict=True):
            stored = None if text is None else self._fields_in(name, text)
            if refusal := attempt.refusal(*stored_version(stored)):
                refusals.append(refusal)
            else:
                accepted.append((attempt, checkpoint))
                fields = checkpoint and fields_of(checkpoint, attempt.version, now)
                arguments += [name, text or "", json.dumps(fields) if fields else ""]
        if accepted:
            others = await self.storage.ask(
                lambda client, key: client.eval(_REPLACE, 1, key, *arguments)
            )
            if others:
                # Another writer's, or, if an answer was lost, what this call has written.
                refusals += await self._apply([accepted[index] for index in others])
        return refusals

    def _fields_in(self, name: str, text: str) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self} has a field that is no checkpoint ({error!r}): {name!r}: {text!r:.500}. "
                f"Restore it from a backup, or set {_PREFIX_KEY} to another."
            ) from error


def _client_of(kind: type[Redis | RedisCluster], url: str) -> Any:
    return kind.from_url(
        url,
        decode_responses=True,
        # The policy of the context repeats calls.
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_CALL_SECONDS,
        socket_connect_timeout=_CALL_SECONDS,
    )
