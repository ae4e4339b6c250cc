"""Makes the calls of the data plane, after a pattern that botocore makes of the first one.

For the first call of an operation on a stream, botocore resolves the endpoint, finds the
credentials and writes the headers. The hook ``before-send`` takes the signed request before it is
sent. From then on this module signs each call, and a carrier sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NoReturn

import orjson
from attrs import field, frozen
from botocore.parsers import create_parser

from kinesis_publishers.aws import cbor
from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier
from kinesis_publishers.aws.carriers.carrier import SignedCall
from kinesis_publishers.aws.clients import method_of
from kinesis_publishers.aws.errors import mapped_errors
from kinesis_publishers.aws.signing import CallPattern, check_credentials, learn_time
from kinesis_publishers.clock import Clock, ServiceClock
from kinesis_publishers.model import StartingPosition

JSON = "application/x-amz-json-1.1"


@frozen
class Answer:
    """An answer of the service; the names of its headers are looked up in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_cbor(self) -> bool:
        return self.headers.get("content-type", "").startswith(cbor.CONTENT_TYPE)

    def parsed(self) -> Any:
        """Return the decoded body; raises ``ValueError`` if it does not match its content type."""
        return cbor.loads(self.body) if self.is_cbor else orjson.loads(self.body)


class _Taken(BaseException):
    """Carries a signed request out of botocore, which does not catch it."""

    def __init__(self, request: Any) -> None:
        # A traceback shows the arguments; a request shows its credentials.
        super().__init__()
        self.request = request


class ServiceCalls:
    """Makes calls with the endpoints and credentials of a client of aiobotocore.

    The client itself can no longer make them. ``clock`` learns the service's time.
    """

    def __init__(self, client: Any, carrier: AiohttpCarrier, clock: Clock) -> None:
        self._client = client
        self._carrier = carrier
        self._clock = clock
        self._machine = clock.machine if isinstance(clock, ServiceClock) else clock
        # It learns from refusals alone: other answers may come from a cache.
        self._signature_clock = ServiceClock(self._machine)
        self._patterns: dict[tuple[str, str], CallPattern] = {}
        for operation in ("GetRecords", "GetShardIterator", "SubscribeToShard", "PutRecords"):
            client.meta.events.register(f"before-send.kinesis.{operation}", _take)

    def errors(self, operation: str, where: str) -> AbstractContextManager[None]:
        return mapped_errors(operation, where, client=self._client)

    async def sign(
        self, operation: str, arn: str, body: bytes, where: str, content_type: str = JSON
    ) -> SignedCall:
        """Return a signed call, to be sent at once; error messages name ``where``.

        The endpoint may depend on ``arn``, of a stream or a consumer.
        """
        pattern = self._patterns.get((operation, arn)) or await self._learn(operation, arn)
        found = self._client._request_signer._credentials
        credentials = await found.get_frozen_credentials()
        check_credentials(credentials, found.method)
        at = self._signature_clock.now()
        headers = pattern.sign(body, content_type=content_type, credentials=credentials, at=at)
        now = self._machine.now()
        return SignedCall(url=pattern.url, headers=headers, body=body, where=where, signed_at=now)

    async def _learn(self, operation: str, arn: str) -> CallPattern:
        named = "ConsumerARN" if operation == "SubscribeToShard" else "StreamARN"
        try:
            await method_of(self._client, operation)(**{named: arn})
        except _Taken as taken:
            pattern = CallPattern.of_request(taken.request)
        self._patterns[operation, arn] = pattern
        return pattern

    async def post(self, call: SignedCall) -> Answer:
        """Send a call and return the whole answer, of any status."""
        answer = Answer(*await self._carrier.post(call))
        self.observe(answer.headers, call.signed_at)
        return answer

    def observe(self, headers: Mapping[str, str], sent_at: datetime) -> None:
        """Learn the service's time from the headers of an answer."""
        if isinstance(self._clock, ServiceClock):
            self._clock.observe(headers.get("date"), sent_at=sent_at)

    def refusal(self, operation: str, answer: Answer) -> Exception:
        """Return botocore's error for a refusal, and learn the service's time from it."""
        parsed = error_in(answer)
        learn_time(self._signature_clock, parsed)
        kind = self._client.exceptions.from_code(parsed["Error"]["Code"])
        error: Exception = kind(parsed, operation)
        return error


def encoded(members: dict[str, Any], is_cbor: bool) -> bytes:
    return cbor.dumps(members) if is_cbor else orjson.dumps(members)


def error_in(answer: Answer) -> dict[str, Any]:
    """Return a refusal, in JSON or CBOR, as botocore's parser returns it."""
    try:
        body = orjson.dumps(answer.parsed()) if answer.is_cbor else answer.body
    except (TypeError, ValueError):
        body = b""
    response: Any = {"status_code": answer.status, "headers": answer.headers, "body": body}
    parsed: dict[str, Any] = create_parser("json").parse(response, None)  # type: ignore[arg-type]
    return parsed


def position_members(position: StartingPosition, kind: str, number: str) -> dict[str, Any]:
    """Return a position as members of a call in JSON, with these names.

    An instant is rounded down to milliseconds like the arrival of a record: rounding up would skip
    records of the same millisecond. Whole seconds would begin too early, with records from before a
    pinned LATEST.
    """
    members: dict[str, Any] = {kind: position.type.value}
    if position.sequence_number is not None:
        members[number] = position.sequence_number.sequence_number
    if position.timestamp is not None:
        members["Timestamp"] = int(position.timestamp.timestamp() * 1000) / 1000
    return members


def _take(request: Any, **_: Any) -> NoReturn:
    raise _Taken(request)
