"""Our signatures and requests against botocore's own."""

from __future__ import annotations

import traceback
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import botocore.auth
import orjson
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws.calls import JSON, ServiceCalls
from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier
from kinesis_publishers.aws.carriers.carrier import Endpoint
from kinesis_publishers.aws.clients import method_of, open_aio_client
from kinesis_publishers.aws.signing import CallPattern
from kinesis_publishers.config import AwsConfig, CredentialsConfig, CredentialsProvider
from kinesis_publishers.errors import CredentialsError, ServiceError
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = "123456789012"
WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30)
SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N", "S", "P"]), min_size=1)
TOKENS = st.none() | SECRETS
CREDENTIALS = st.builds(ReadOnlyCredentials, WORDS, SECRETS, TOKENS)
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
HOSTS = st.sampled_from(["kinesis.eu-west-1.amazonaws.com", "LOCALHOST", "10.0.0.1", "[::1]"])
PORTS = st.sampled_from(["", ":80", ":443", ":4566"])
PATHS = st.sampled_from(["/", "", "/a/b", "/a//b/../c", "/a b/ü", "/~x/"])
HEADERS = st.dictionaries(st.sampled_from(["X-A", "x-b", "User-Agent"]), WORDS, max_size=3)


@contextmanager
def frozen(at: datetime) -> Iterator[None]:
    """Let botocore sign at an instant, and give each call the same id."""
    with (
        patch("botocore.auth.get_current_datetime", lambda *_, **__: at.replace(tzinfo=None)),
        patch("uuid.uuid4", lambda: uuid.UUID(int=7)),
    ):
        yield


def signed_by_botocore(
    url: str, headers: dict[str, str], body: bytes, credentials: ReadOnlyCredentials, region: str
) -> Any:
    request = AWSRequest("POST", url, headers=headers, data=body)
    botocore.auth.SigV4Auth(credentials, "kinesis", region).add_auth(request)
    return request.prepare()


@given(
    url=st.builds("{}://{}{}{}".format, st.sampled_from(["http", "https"]), HOSTS, PORTS, PATHS),
    headers=HEADERS,
    bodies=st.tuples(st.binary(min_size=1), st.binary(min_size=1)),
    both=st.tuples(CREDENTIALS, CREDENTIALS),
    times=st.tuples(INSTANTS, INSTANTS),
    region=WORDS,
)
def test_a_call_after_a_pattern_is_what_botocore_signs(
    url: str,
    headers: dict[str, str],
    bodies: tuple[bytes, bytes],
    both: tuple[ReadOnlyCredentials, ReadOnlyCredentials],
    times: tuple[datetime, datetime],
    region: str,
):
    headers = headers | {"Content-Type": JSON, "amz-sdk-invocation-id": str(uuid.UUID(int=7))}
    requests = []
    for body, credentials, at in zip(bodies, both, times, strict=True):
        with frozen(at):
            requests.append(signed_by_botocore(url, headers, body, credentials, region))
    pattern, expected = CallPattern.of_request(requests[0]), requests[1]
    with frozen(times[1]):
        found = pattern.sign(bodies[1], content_type=JSON, credentials=both[1], at=times[1])
    assert pattern.url == expected.url
    assert lowered(found) == lowered(expected.headers)


def lowered(headers: Any) -> dict[str, str]:
    return {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in headers.items()
    }


def config(region: str, token: str | None = None, **more: Any) -> AwsConfig:
    return AwsConfig(
        region=region,
        credentials=CredentialsConfig(
            provider=CredentialsProvider.BASIC,
            access_key_id="key",
            secret_key="secret",
            session_token=token,
        ),
        **more,
    )


def client_of(aws: AwsConfig) -> Any:
    return open_aio_client(aws, "kinesis", aws.endpoint_url, parameter_validation=False)


def calls_of(client: Any, clock: ManualClock) -> ServiceCalls:
    endpoint = Endpoint(url=client.meta.endpoint_url)
    carrier = AiohttpCarrier(endpoint, read_timeout_seconds=1.0, max_connections=1)
    return ServiceCalls(client, carrier, clock)


class _Sent(Exception):
    """Carries the request that botocore was about to send."""


def _keep(request: Any, **_: Any) -> None:
    raise _Sent(request)


async def sent_by_botocore(aws: AwsConfig, operation: str, request: dict[str, Any]) -> Any:
    async with client_of(aws) as client:
        client.meta.events.register("before-send.kinesis", _keep)
        with pytest.raises(_Sent) as raised:
            await method_of(client, operation)(**request)
    return raised.value.args[0]


STREAM = "arn:{}:kinesis:{}:" + ACCOUNT + ":stream/orders"


@pytest.mark.parametrize(
    ("region", "partition", "host"),
    [
        ("eu-west-1", "aws", f"{ACCOUNT}.data-kinesis.eu-west-1.amazonaws.com"),
        ("cn-north-1", "aws-cn", f"{ACCOUNT}.data-kinesis.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", f"{ACCOUNT}.data-kinesis.us-gov-west-1.amazonaws.com"),
        ("us-iso-east-1", "aws-iso", "kinesis.us-iso-east-1.c2s.ic.gov"),
    ],
)
@pytest.mark.parametrize("token", [None, "session/token+="])
async def test_a_call_goes_where_botocore_sends_it_with_the_same_headers(
    region: str, partition: str, host: str, token: str | None
) -> None:
    aws, clock = config(region, token), ManualClock()
    stream = STREAM.format(partition, region)
    consumer = f"{stream}/consumer/reader:1"
    async with client_of(aws) as client:
        calls = calls_of(client, clock)
        for operation, arn, request in (
            ("GetRecords", stream, {"StreamARN": stream, "ShardIterator": "i", "Limit": 5}),
            (
                "GetShardIterator",
                stream,
                {"StreamARN": stream, "ShardId": "s", "ShardIteratorType": "LATEST"},
            ),
            (
                "SubscribeToShard",
                consumer,
                {"ConsumerARN": consumer, "ShardId": "s", "StartingPosition": {"Type": "LATEST"}},
            ),
        ):
            # The second call is made after the pattern of the first.
            await calls.sign(operation, arn, b"{}", "where")
            with frozen(clock.now()):
                expected = await sent_by_botocore(aws, operation, request)
                call = await calls.sign(operation, arn, expected.body, "where")
            assert orjson.loads(expected.body) == request
            assert call.url == expected.url == f"https://{host}/"
            assert lowered(call.headers) == lowered(expected.headers)


async def test_an_endpoint_of_the_user_s_is_kept_with_its_path() -> None:
    aws = config("us-east-1", endpoint_url="http://localhost:4566/kinesis")
    stream, clock = STREAM.format("aws", "us-east-1"), ManualClock()
    async with client_of(aws) as client:
        with frozen(clock.now()):
            request = {"StreamARN": stream, "ShardIterator": "i"}
            expected = await sent_by_botocore(aws, "GetRecords", request)
            call = await calls_of(client, clock).sign("GetRecords", stream, expected.body, "where")
    assert call.url == expected.url
    assert lowered(call.headers) == lowered(expected.headers)


async def test_an_arn_of_another_partition_is_refused_before_a_call() -> None:
    stream = STREAM.format("aws-cn", "cn-north-1")
    async with client_of(config("us-east-1")) as client:
        calls = calls_of(client, ManualClock())
        with pytest.raises(ServiceError, match="Partition"), calls.errors("GetRecords", "orders"):
            await calls.sign("GetRecords", stream, b"{}", "orders")


async def test_a_request_that_cannot_be_read_shows_no_credentials() -> None:
    async with client_of(config("us-east-1", "the-token")) as client:
        calls, stream = calls_of(client, ManualClock()), STREAM.format("aws", "us-east-1")
        failing = patch.object(CallPattern, "of_request", side_effect=ValueError("other headers"))
        with failing, pytest.raises(ValueError, match="other headers") as raised:
            await calls.sign("GetRecords", stream, b"{}", "where")
    shown = "".join(traceback.format_exception(raised.value))
    assert "the-token" not in shown
    assert "Credential=" not in shown


async def test_missing_credentials_are_an_error_of_our_tree() -> None:
    aws = AwsConfig(
        region="us-east-1",
        credentials=CredentialsConfig(provider=CredentialsProvider.ENV_VAR),
    )
    async with client_of(aws) as client:
        calls = calls_of(client, ManualClock())
        with pytest.raises(CredentialsError), calls.errors("GetRecords", "orders"):
            await calls.sign("GetRecords", STREAM.format("aws", "us-east-1"), b"{}", "orders")
