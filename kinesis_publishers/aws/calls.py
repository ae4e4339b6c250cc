"""Makes the calls of the data plane: botocore makes the pattern of each, and only that.

For the first call of an operation on a stream botocore resolves the endpoint, finds the credentials
and writes the headers, as for any call. The hook ``before-send``, where something else may answer a
signed request, takes that request away before it is sent. Then each call is signed here, and sent
by a carrier.
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

JSON = "application/x-amz-json-1.1"


@frozen
class Answer:
    """What the service answers.

    Attributes:
        headers: looked up by names in lower case.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_cbor(self) -> bool:
        return self.headers.get("content-type", "").startswith(cbor.CONTENT_TYPE)

    def parsed(self) -> Any:
        """Return what the body says.

        Raises:
            ValueError: it is not what its content type announces.
        """
        return cbor.loads(self.body) if self.is_cbor else orjson.loads(self.body)


class _Taken(BaseException):
    """Carries a signed request out of botocore; nothing there catches it."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class ServiceCalls:
    """Makes calls with the endpoints and credentials of a client of aiobotocore.

    The operations must not be called through the client itself.

    Args:
        carrier: sends the calls that are answered at once.
        clock: learns the time of the service.
    """

    def __init__(self, client: Any, carrier: AiohttpCarrier, clock: Clock) -> None:
        self._client = client
        self._carrier = carrier
        self._clock = clock
        self._machine = clock.machine if isinstance(clock, ServiceClock) else clock
        # Learns from refusals alone: other answers may come from a cache.
        self._signature_clock = ServiceClock(self._machine)
        self._patterns: dict[tuple[str, str], CallPattern] = {}
        for operation in ("GetRecords", "GetShardIterator", "SubscribeToShard", "PutRecords"):
            client.meta.events.register(f"before-send.kinesis.{operation}", _take)

    def errors(self, operation: str, where: str) -> AbstractContextManager[None]:
        """Return a context that raises errors of our tree for those of a call."""
        return mapped_errors(operation, where, client=self._client)

    async def sign(
        self, operation: str, arn: str, body: bytes, where: str, content_type: str = JSON
    ) -> SignedCall:
        """Return a call that is ready to be sent, now.

        Args:
            arn: of the stream, or of the consumer; the endpoint may depend on it.
            where: for messages.
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
        """Learn the time of the service from the headers of an answer."""
        if isinstance(self._clock, ServiceClock):
            self._clock.observe(headers.get("date"), sent_at=sent_at)

    def refusal(self, operation: str, answer: Answer) -> Exception:
        """Return botocore's error for an answer that is a refusal, and learn the time from it."""
        parsed = error_in(answer)
        learn_time(self._signature_clock, parsed)
        kind = self._client.exceptions.from_code(parsed["Error"]["Code"])
        error: Exception = kind(parsed, operation)
        return error


def error_in(answer: Answer) -> dict[str, Any]:
    """Return what botocore's parser makes of a refusal, also of one in CBOR."""
    body = answer.body
    if answer.is_cbor:
        try:
            body = orjson.dumps(answer.parsed())
        except (TypeError, ValueError):
            body = b""
    response = {"status_code": answer.status, "headers": answer.headers, "body": body}
    no_shape: Any = None
    parsed: dict[str, Any] = create_parser("json").parse(response, no_shape)
    return parsed


def millis_of(instant: datetime) -> int:
    """Return an instant as calls say it, in whole milliseconds, like the arrival of a record.

    Rounded down like those: more would skip a record of the same millisecond. Whole seconds would
    begin too early, with records from before a pinned LATEST.
    """
    return int(instant.timestamp() * 1000)


def _take(request: Any, **_: Any) -> NoReturn:
    raise _Taken(request)
