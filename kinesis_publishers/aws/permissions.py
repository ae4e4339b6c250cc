"""Proves, without effects, that the credentials may make the calls of a reader or of a producer.

Calls of the data plane are made with DryRun, those that only describe as they are. Nothing proves
those that register and remove stream consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field, frozen

from kinesis_publishers.config import DeregistrationPolicy, RegistrationConfig, RegistrationStrategy
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ConsumerNotFoundError,
    CredentialsError,
    EncryptionKeyError,
    ServiceError,
)

if TYPE_CHECKING:
    from kinesis_publishers.aws.control_plane import CallingControlPlane

Verdict = Literal["allowed", "denied", "not provable"]


@frozen
class Permission:
    """What is known of one permission; ``reason`` says why it is not known to be allowed."""

    action: str
    resource: str
    verdict: Verdict
    reason: str = ""


@define
class PermissionProof:
    """Tries the calls on one stream, by its ARN, and keeps what was found.

    Each method raises what ends all proofs: the service cannot be reached, or does not accept the
    credentials.
    """

    _plane: CallingControlPlane
    _stream: str
    found: list[Permission] = field(factory=list)
    _shard_id: str = "shardId-000000000000"

    async def describe(self) -> None:
        """Prove what all need; the other methods try the first shard that is listed."""
        await self._try("DescribeStreamSummary", self._stream, StreamARN=self._stream)
        shards = (await self._try("ListShards", self._stream, StreamARN=self._stream)).get("Shards")
        self._shard_id = shards[0]["ShardId"] if shards else self._shard_id

    async def poll(self) -> None:
        answer = await self._try("GetShardIterator", self._stream, **self._start)
        iterator = answer.get("ShardIterator")
        if iterator is None:
            self._note("GetRecords", self._stream, "not provable", "GetShardIterator comes first")
        else:
            await self._try("GetRecords", self._stream, ShardIterator=iterator, DryRun=True)

    async def fan_out(self, registration: RegistrationConfig) -> None:
        arn = registration.consumer_arns.get(self._stream.rpartition("/")[2])
        if registration.strategy is not RegistrationStrategy.NONE:
            arn = await self._register(registration, registration.required_name())
        if arn is None:
            reason = "the consumer is not registered yet"
            self._note("SubscribeToShard", self._stream, "not provable", reason)
            return
        start = {"ShardId": self._shard_id, "StartingPosition": {"Type": "LATEST"}}
        await self._try_dry("SubscribeToShard", arn, ConsumerARN=arn, **start)

    async def _register(self, registration: RegistrationConfig, name: str) -> str | None:
        named = {"StreamARN": self._stream, "ConsumerName": name}
        where = f"{self._stream}/consumer/{name}"
        found = await self._try("DescribeStreamConsumer", where, **named)
        await self._try("ListStreamConsumers", self._stream, StreamARN=self._stream)
        self._note("RegisterStreamConsumer", where, "not provable", "it has no DryRun")
        if registration.deregister is not DeregistrationPolicy.NEVER:
            self._note("DeregisterStreamConsumer", where, "not provable", "it has no DryRun")
        arn: str | None = found.get("ConsumerDescription", {}).get("ConsumerARN")
        return arn

    async def write(self) -> None:
        record = {"Data": b"", "PartitionKey": "dry run"}
        await self._try_dry("PutRecords", self._stream, StreamARN=self._stream, Records=[record])

    @property
    def _start(self) -> dict[str, str]:
        kind = "TRIM_HORIZON"
        return {"StreamARN": self._stream, "ShardId": self._shard_id, "ShardIteratorType": kind}

    async def _try_dry(self, operation: str, where: str, **request: Any) -> None:
        """Try a call with effects, unless an emulator that knows no DryRun would make it."""
        try:
            await self._plane.ask("GetShardIterator", where, DryRun=True, **self._start)
        except ServiceError:
            await self._try(operation, where, DryRun=True, **request)
        else:
            self._note(operation, where, "not provable", "the service does not know DryRun")

    async def _try(self, operation: str, where: str, **request: Any) -> dict[str, Any]:
        """Make a call and note what that proves; return its answer, empty after a refusal."""
        try:
            answer = await self._plane.ask(operation, where, **request)
        except (ConnectionFailedError, CredentialsError):
            raise
        except ServiceError as error:
            self._note(operation, where, _verdict(error), str(error))
            return {}
        self._note(operation, where, "allowed")
        return answer

    def _note(self, operation: str, where: str, verdict: Verdict, reason: str = "") -> None:
        reason = "" if verdict == "allowed" else reason
        self.found.append(Permission(f"kinesis:{operation}", where, verdict, reason))


def _verdict(refusal: ServiceError) -> Verdict:
    if isinstance(refusal, (AccessDeniedError, EncryptionKeyError)):
        return "denied"
    # Who may not call is not told what exists.
    is_found = isinstance(refusal, ConsumerNotFoundError)
    return "allowed" if is_found or refusal.code == "DryRunOperationException" else "not provable"
