"""Checkpoints in Redis, Valkey or what speaks their protocol: needs the extra ``redis``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypeVar

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import Properties, RedisCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    ClosedError,
    ConnectionFailedError,
    InvalidOptionError,
    KinesisPublishersError,
    ResourceInUseError,
    ServiceError,
)
from kinesis_publishers.model import Checkpoint, CheckpointVersion, ShardKey, StoredCheckpoint

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)

_URL_KEY: Final = RedisCheckpointConfig.url.full_key
_OPERATION: Final = "the call about checkpoints"
# The heartbeat of a lease is worth nothing if it takes longer.
_CALL_SECONDS: Final = 10.0
# A script stops everything else that the server does: half a millisecond for as many.
_WRITES_PER_SCRIPT: Final = 500

# The rule of Attempt.replaces, for each write on its own. An empty text stands for none.
_WRITE: Final = """\
local refused = {}
for i = 1, #ARGV, 7 do
  local shard, number, writer, own, first, last, value = unpack(ARGV, i, i + 6)
  local text = redis.call('HGET', KEYS[1], shard)
  local stored, is_free = {}, number == ''
  if text then
    local is_json, decoded = pcall(cjson.decode, text)
    if is_json and type(decoded) == 'table' then stored = decoded end
    local version = tonumber(stored.version) or 0
    is_free = (version == tonumber(number) and stored.writer == writer) or
      (stored.writer == own and tonumber(first) <= version and version <= tonumber(last))
  end
  if not is_free then
    table.insert(refused, {
      (i - 1) / 7, text and (tonumber(stored.version) or 0) or '',
      tostring(stored.writer), tostring(stored.written_at)})
  elseif value == '' then
    redis.call('HDEL', KEYS[1], shard)
  else
    redis.call('HSET', KEYS[1], shard, value)
  end
end
return refused
"""

_OF_CONNECTIONS: Final = (exceptions.RedisClusterException, OSError)
_Kinds: TypeAlias = "type[Exception] | tuple[type[Exception], ...]"
# The first that fits: some classes extend others. Older redis-py has fewer classes, and what fails
# inside of a script before Redis 7 has its reason in the text alone.
_MEANINGS: Final[tuple[tuple[_Kinds, str, type[KinesisPublishersError], str], ...]] = (
    (
        exceptions.AuthenticationError,
        "",
        AccessDeniedError,
        f"check user and password in {_URL_KEY}",
    ),
    (
        exceptions.RedisError,
        "permission|user executing the script",
        AccessDeniedError,
        "allow the user +hgetall, +hget, +hset, +hdel, +evalsha, +script|load and +info",
    ),
    (
        exceptions.RedisError,
        "read only replica",
        CheckpointError,
        f"name the primary, not a replica of it, in {_URL_KEY}",
    ),
    (
        exceptions.RedisError,
        "wrong kind of value",
        CheckpointError,
        "another program uses the key: set kinesis.checkpoint.redis.prefix to another",
    ),
    (
        exceptions.RedisError,
        "'maxmemory'",
        CheckpointError,
        "its memory is full: raise maxmemory, or remove other keys",
    ),
    (
        exceptions.ResponseError,
        "(?i)moved",
        CheckpointError,
        f"another node of the cluster has the key: name that one in {_URL_KEY}",
    ),
    (
        # Also while it loads its files.
        (exceptions.ConnectionError, exceptions.TimeoutError, *_OF_CONNECTIONS),
        "",
        ConnectionFailedError,
        f"check that the server is up, and {_URL_KEY}",
    ),
    (
        # No quorum of a cluster, a slot that moves; a script or a failing disk that it waits for.
        exceptions.ResponseError,
        "(?i)clusterdown|tryagain|masterdown|busy|misconf|noreplicas",
        ResourceInUseError,
        "it takes no writes for now",
    ),
)


class RedisCheckpointStore(VersionedStore):
    """Keeps checkpoints as fields of a hash per application, one per shard.

    A batch is one script per 500 writes, which nothing comes between.

    A write is as durable as Redis is configured to be, which is less than what other stores
    promise. Without ``appendonly yes`` a crash loses what came after the last snapshot; with it,
    ``appendfsync everysec`` loses about a second, and only ``always`` nothing. Replication is
    asynchronous: a replica that is promoted may lack the last writes. Lost checkpoints mean that
    records are repeated, and lost leases that two workers read a shard until the next renewal of
    one of them is refused; no record is left out.
    """

    def __init__(self, context: CheckpointStoreContext, config: RedisCheckpointConfig) -> None:
        super().__init__(context)
        self._url = config.url or ""
        self._client: Any = _client_of(Redis, self._url)
        self._where = _address_of(self._client)
        # On a cluster, the part in braces decides which node has it.
        self._key = f"{config.prefix}:{{{context.application}}}"
        self._is_open = False

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context, RedisCheckpointConfig.from_properties(properties))

    def __str__(self) -> str:
        return f"the key {self._key} of {self._where}"

    async def open(self) -> None:
        self._is_open = True
        settings = await self._call(self._settings)
        if settings.get("cluster_enabled"):
            await self._client.aclose()
            self._client = _client_of(RedisCluster, self._url)
        policy = str(settings.get("maxmemory_policy", ""))
        risks = [
            "appendonly is no" if settings.get("aof_enabled") == 0 else "",
            f"maxmemory-policy is {policy}" if policy.startswith("allkeys") else "",
        ]
        if any(risks):
            _LOGGER.warning(
                "Checkpoints in %s may get lost, because %s: set appendonly to yes and "
                "maxmemory-policy to noeviction.",
                self,
                " and ".join(filter(None, risks)),
            )

    async def _settings(self) -> dict[str, Any]:
        try:
            settings: dict[str, Any] = await self._client.info()
        except exceptions.NoPermissionError:
            return {}
        return settings

    async def close(self) -> None:
        self._is_open = False
        await self._client.aclose()

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found: Any = await self._call(lambda: self._client.hgetall(self._key))
        return dict(self._stored(field, value) for field, value in found.items())

    def _stored(self, field: str, value: str) -> tuple[ShardKey, StoredCheckpoint]:
        shard = ShardKey(*field.rpartition("/")[::2])
        try:
            fields = json.loads(value)
            fields.get("version")
        except (ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{self} has a field that is no checkpoint ({error!r}): {field!r}: {value!r:.500}. "
                "Restore it from a backup, or choose another prefix or application."
            ) from error
        return shard, stored_from_fields(shard, fields, where=self)

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        refusals = []
        script = self._client.register_script(_WRITE)
        for first in range(0, len(changes), _WRITES_PER_SCRIPT):
            batch = changes[first : first + _WRITES_PER_SCRIPT]
            arguments = [one for change in batch for one in self._arguments(*change)]
            refused = await self._call(partial(script, keys=[self._key], args=arguments))
            refusals += [
                Refusal(
                    attempt=batch[index][0],
                    stored=CheckpointVersion(number=number, writer=writer)
                    if isinstance(number, int)
                    else None,
                    written_at=written_at,
                )
                for index, number, writer, written_at in refused
            ]
        return refusals

    def _arguments(self, attempt: Attempt, checkpoint: Checkpoint | None) -> tuple[str | int, ...]:
        value, expected = "", attempt.expected
        if checkpoint is not None:
            fields = fields_of(checkpoint, attempt.version, self._context.clock.now())
            value = json.dumps({name: one for name, one in fields.items() if one is not None})
        return (
            f"{attempt.shard.stream_arn}/{attempt.shard.shard_id}",
            "" if expected is None else expected.number,
            "" if expected is None else expected.writer,
            attempt.version.writer,
            attempt.first_unanswered,
            attempt.version.number,
            value,
        )

    async def _call(self, call: Callable[[], Awaitable[_T]]) -> _T:
        async def attempt() -> _T:
            if not self._is_open:
                raise ClosedError(f"The store of checkpoints in {self} is not open.")
            try:
                return await call()
            except (exceptions.RedisError, *_OF_CONNECTIONS) as error:
                raise _mapped(error, self) from error

        return await self._with_retries(attempt)


def _client_of(kind: type[Redis | RedisCluster], url: str) -> Redis | RedisCluster:
    """Return a client that is not connected yet."""
    try:
        return kind.from_url(
            url,
            decode_responses=True,
            # Repeating is up to the policy of the context.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_CALL_SECONDS,
            socket_connect_timeout=_CALL_SECONDS,
        )
    except ValueError:
        pass  # reported below, outside the handler: a traceback could show the password
    raise InvalidOptionError(
        f"{_URL_KEY}: got ***, expected {RedisCheckpointConfig.url.parser.accepts}; special "
        "characters of a user or password are written as %40 for @"
    )


def _address_of(client: Any) -> str:
    options = client.connection_pool.connection_kwargs
    place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return f"redis://{place}/{options.get('db', 0)}"


def _mapped(error: Exception, where: object) -> KinesisPublishersError:
    text = str(error).rstrip(".")
    code = getattr(error, "status_code", None) or type(error).__name__
    kind, advice = next(
        (
            (kind, advice)
            for found, words, kind, advice in _MEANINGS
            if isinstance(error, found) and re.search(words, f"{code} {text}")
        ),
        (CheckpointError, f"check {_URL_KEY}, and the log of the server"),
    )
    message = f"{where} cannot be used ({code}: {text}): {advice}."
    if issubclass(kind, ServiceError):
        return kind(message, operation=_OPERATION, code=code)
    return kind(message)
