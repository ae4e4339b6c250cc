"""Tests, without effects, whether the credentials allow the calls of a reader or producer.

Calls of the data plane have DryRun; calls that only describe are made as they are. The registration
and removal of stream consumers cannot be tested.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import define, field, frozen

from kinesis_publishers.aws.control_plane import CallingControlPlane
from kinesis_publishers.config import DeregistrationPolicy, RegistrationConfig, RegistrationStrategy
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ConsumerNotFoundError,
    CredentialsError,
    EncryptionKeyError,
    ServiceError,
)
from kinesis_publishers.model.sources import stream_name_of

_WOULD_SUCCEED = "DryRunOperationException"
Verdict = Literal["allowed", "denied", "not provable"]


@frozen
class Permission:
    """The finding about one permission; ``reason`` says why it is not allowed."""

    action: str
    resource: str
    verdict: Verdict
    reason: str = ""


@define
class PermissionProof:
    """Tries calls on one stream (by ARN), and keeps the findings.

    Each method raises the errors that make further tries pointless: the service cannot be reached,
    or rejects the credentials.
    """

    _plane: CallingControlPlane
    _stream: str
    found: list[Permission] = field(factory=list)
    _shard_id: str = "shardId-000000000000"

    async def describe(self) -> None:
        """Try the calls that every program needs; the other methods use the first listed shard."""
        await self._try("DescribeStreamSummary", self._stream, StreamARN=self._stream)
        shards = (await self._try("ListShards", self._stream, StreamARN=self._stream)).get("Shards")
        self._shard_id = shards[0]["ShardId"] if shards else self._shard_id

    async def poll(self) -> None:
        answer = await self._try("GetShardIterator", self._stream, **self._start)
        if iterator := answer.get("ShardIterator"):
            await self._try("GetRecords", self._stream, ShardIterator=iterator, DryRun=True)
        else:
            self._note("GetRecords", self._stream, "GetShardIterator comes first")

    async def fan_out(self, registration: RegistrationConfig) -> None:
        arn = registration.consumer_arns.get(stream_name_of(self._stream))
        if registration.strategy is not RegistrationStrategy.NONE:
            named = {"StreamARN": self._stream, "ConsumerName": registration.required_name()}
            where = f"{self._stream}/consumer/{registration.required_name()}"
            found = await self._try("DescribeStreamConsumer", where, **named)
            arn = found.get("ConsumerDescription", {}).get("ConsumerARN")
            await self._try("ListStreamConsumers", self._stream, StreamARN=self._stream)
            self._note("RegisterStreamConsumer", where, "it has no DryRun")
            if registration.deregister is not DeregistrationPolicy.NEVER:
                self._note("DeregisterStreamConsumer", where, "it has no DryRun")
        if arn is None:
            self._note("SubscribeToShard", self._stream, "the consumer is not registered yet")
        else:
            start = {"ShardId": self._shard_id, "StartingPosition": {"Type": "LATEST"}}
            await self._try_dry("SubscribeToShard", arn, ConsumerARN=arn, **start)

    async def write(self) -> None:
        record = {"Data": b"", "PartitionKey": "dry run"}
        await self._try_dry("PutRecords", self._stream, StreamARN=self._stream, Records=[record])

    @property
    def _start(self) -> dict[str, str]:
        kind = "TRIM_HORIZON"
        return {"StreamARN": self._stream, "ShardId": self._shard_id, "ShardIteratorType": kind}

    async def _try_dry(self, operation: str, where: str, **request: Any) -> None:
        """Try a call with effects, unless the service is an emulator without DryRun."""
        reason = "the service does not know DryRun"
        try:
            await self._plane.ask("GetShardIterator", where, dict, DryRun=True, **self._start)
        except (ConnectionFailedError, CredentialsError):
            raise
        except ServiceError as error:
            is_denied = isinstance(error, AccessDeniedError | EncryptionKeyError)
            # An emulator may enforce policies without supporting DryRun.
            if (is_denied and self._plane.calls_aws) or error.code == _WOULD_SUCCEED:
                await self._try(operation, where, DryRun=True, **request)
                return
            # The answer says nothing about DryRun, such as a throttled call.
            reason = str(error)
        self._note(operation, where, reason)

    async def _try(self, operation: str, where: str, **request: Any) -> dict[str, Any]:
        """Make a call and note the finding; return the answer, empty after a refusal."""
        answer: dict[str, Any] = {}
        verdict: Verdict = "allowed"
        reason = ""
        try:
            answer = await self._plane.ask(operation, where, dict, **request)
        except (ConnectionFailedError, CredentialsError):
            raise
        except (AccessDeniedError, EncryptionKeyError) as error:
            verdict, reason = "denied", str(error)
        except ConsumerNotFoundError:
            pass  # Without permission, an answer does not show what exists.
        except ServiceError as error:
            if error.code != _WOULD_SUCCEED:
                verdict, reason = "not provable", str(error)
        self._note(operation, where, reason, verdict)
        return answer

    def _note(
        self, operation: str, where: str, reason: str, verdict: Verdict = "not provable"
    ) -> None:
        self.found.append(Permission(f"kinesis:{operation}", where, verdict, reason))
