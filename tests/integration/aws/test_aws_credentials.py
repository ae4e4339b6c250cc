"""What goes wrong with credentials, with the clock that dates signatures, and with STS."""

from __future__ import annotations

import logging
import traceback
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from kinesis_publishers import Properties, Shard, StartingPosition
from kinesis_publishers.aws.clients import open_aio_client
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.aws.errors import mapped_errors
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CredentialsError,
    ServiceError,
)
from kinesis_publishers.retry import RetryPolicy, call_with_retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_SHARD = Shard(stream_arn=_ARN, shard_id="shardId-000000000000")
_ROLE = "arn:aws:iam::123456789012:role/x"
_PREFIX = "aws.credentials.provider"
_POSITION = StartingPosition.trim_horizon()
_SECRET = "SECRETVALUE"
_AT_ONCE = RetryPolicy(max_retries=3, base_seconds=0.0, max_seconds=0.0, exponent=1.0)


def _aws(url: str, **values: str) -> AwsConfig:
    given = {f"{_PREFIX}.{name}" if name else _PREFIX: value for name, value in values.items()}
    properties = {"aws.region": "us-east-1", "aws.endpoint": url, **given}
    return AwsConfig.from_properties(Properties.parse(properties, complete=False))


async def _repeated(call: Callable[[], Awaitable[object]]) -> None:
    await call_with_retries(call, policy=_AT_ONCE, clock=SystemClock())


async def _control(aws: AwsConfig) -> None:
    async with Boto3ControlPlane(aws) as plane:
        await _repeated(lambda: plane.describe_stream("orders"))


async def _data(aws: AwsConfig) -> None:
    async with AioDataPlane(aws) as plane:
        await _repeated(lambda: plane.get_shard_iterator(_SHARD, _POSITION))


async def _store(aws: AwsConfig) -> None:
    async with open_aio_client(aws, "dynamodb", aws.endpoint_url) as client:

        async def attempt() -> None:
            with mapped_errors("ListTables", "the tables", service="dynamodb", client=client):
                await client.list_tables()

        await _repeated(attempt)


_CALLS = pytest.mark.parametrize("call", [_control, _data, _store])
# Of boto3 and of aiobotocore.
_BOTH = pytest.mark.parametrize("call", [_control, _data])
_VALUES = {
    "access key id": ("AWS_ACCESS_KEY_ID", f" {_SECRET}"),
    "secret access key": ("AWS_SECRET_ACCESS_KEY", f"{_SECRET}\u00e9"),
    "session token": ("AWS_SESSION_TOKEN", f"{_SECRET}\n"),
}


async def _refused(
    call: Callable[[AwsConfig], Awaitable[None]], aws: AwsConfig, caplog: pytest.LogCaptureFixture
) -> ServiceError:
    """Return the error of a call that shows no secret anywhere, and that nothing repeats."""
    caplog.set_level(logging.DEBUG, "kinesis_publishers")
    with pytest.raises(ServiceError) as raised:
        await call(aws)
    logged = [one.getMessage() for one in caplog.records if "botocore" not in one.name]
    shown = [*traceback.format_exception(raised.value), repr(raised.value), *logged]
    assert _SECRET not in "\n".join(shown)
    return raised.value


@_CALLS
@pytest.mark.parametrize("name", _VALUES)
async def test_a_value_that_no_header_can_carry_is_named_and_not_shown(
    local_kinesis: LocalKinesis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[AwsConfig], Awaitable[None]],
    name: str,
) -> None:
    for one, (variable, illegal) in _VALUES.items():
        monkeypatch.setenv(variable, illegal if one == name else "good")
    error = await _refused(call, _aws(local_kinesis.endpoint_url), caplog)
    assert isinstance(error, CredentialsError)
    assert not error.retryable
    assert f"The {name} contains white space" in str(error)
    assert f"{_VALUES[name][0]} in the environment" in str(error)
    assert local_kinesis.calls() == []


class Renewed:
    """Credentials whose token is renewed by one that cannot be sent."""

    access_key, secret_key, token = "a", "b", "good"

    def __init__(self, properties: Any) -> None: ...

    def load(self) -> Renewed:
        return self


async def test_a_token_that_is_renewed_is_looked_at_too(
    local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    local_kinesis.create_stream("orders", 1)
    own = {"": "CUSTOM", "custom.class": f"{__name__}:Renewed"}
    aws = _aws(local_kinesis.endpoint_url, **own)
    async with AioDataPlane(aws) as plane:

        async def call(_: AwsConfig) -> None:
            await plane.get_shard_iterator(_SHARD, _POSITION)

        await call(aws)
        monkeypatch.setattr(Renewed, "token", f"{_SECRET}\n")
        error = await _refused(call, aws, caplog)
    assert "session token" in str(error)
    assert "comes from custom" in str(error)


_OF_ROLE = f"role_arn = {_ROLE}\nsource_profile ="
_URI = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_FAILURES = {
    "a program that prints no JSON": ("credential_process = echo hello", {}, "custom-process"),
    "a program that fails": ("credential_process = false", {}, "custom-process"),
    "no such program": ("credential_process = /nowhere/program", {}, "/nowhere/program"),
    "a loop": (f"{_OF_ROLE} q\n[profile q]\n{_OF_ROLE} p", {}, "Infinite loop"),
    "no INI": (f"aws_secret_access_key {_SECRET}", {}, "Unable to parse"),
    "half": (f"aws_access_key_id = {_SECRET}", {}, "Partial"),
    "a host that is not allowed": ("", {_URI: "http://10.0.0.1/c"}, "10.0.0.1"),
    "no file of a pod": (
        "",
        {_URI: "http://127.0.0.1:9/c", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nowhere/token"},
        "/nowhere/token",
    ),
    "an illegal token of a pod": (
        "",
        {_URI: "http://127.0.0.1:9/c", "AWS_CONTAINER_AUTHORIZATION_TOKEN": f"{_SECRET}\n"},
        "container-role",
    ),
    "a code for the terminal": (
        f"{_OF_ROLE} q\nmfa_serial = me\n[profile q]\naws_access_key_id=a\naws_secret_access_key=b",
        {},
        "code of me, and a reader asks for none",
    ),
}


@_BOTH
@pytest.mark.parametrize("failure", _FAILURES)
async def test_credentials_that_cannot_be_had_are_an_error_that_says_which(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    call: Callable[[AwsConfig], Awaitable[None]],
    failure: str,
) -> None:
    text, environment, named = _FAILURES[failure]
    (tmp_path / "config").write_text(f"[profile p]\n{text}\n")
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": "p"}
    for name, value in {**files, **environment}.items():
        monkeypatch.setenv(name, value)
    error = await _refused(call, _aws("http://127.0.0.1:9"), caplog)
    assert isinstance(error, CredentialsError)
    assert named in str(error)


@asynccontextmanager
async def _served(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


def _xml(status: int, code: str, message: str) -> web.Response:
    text = f"<E><Error><Code>{code}</Code><Message>{message}</Message></Error></E>"
    return web.Response(status=status, text=text, content_type="text/xml")


_ASSUMED = (
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>a</AccessKeyId>"
    "<SecretAccessKey>b</SecretAccessKey><SessionToken>t</SessionToken>"
    "<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>"
    "</AssumeRoleResponse>"
)
_AS_ROLE = {
    "": "ASSUME_ROLE",
    "role.arn": _ROLE,
    "role.provider.basic.accesskeyid": "a",
    "role.provider.basic.secretkey": "b",
}


@_BOTH
async def test_what_sts_refuses_is_a_matter_of_sts(
    caplog: pytest.LogCaptureFixture, call: Callable[[AwsConfig], Awaitable[None]]
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return _xml(403, "AccessDenied", "User: me is not authorized")

    async with _served(refuse) as url:
        aws = _aws("http://127.0.0.1:9", **_AS_ROLE, **{"role.stsEndpoint": url})
        error = await _refused(call, aws, caplog)
    assert isinstance(error, AccessDeniedError)
    assert error.operation == "AssumeRole"
    assert f"AssumeRole of {_ROLE}, for " in str(error)
    assert "allow sts:AssumeRole in the IAM policy and in the trust policy" in str(error)


@_CALLS
@pytest.mark.parametrize("minutes", [-20, 20])
async def test_a_signature_of_the_wrong_time_is_made_again_by_the_clock_of_the_service(
    local_kinesis: LocalKinesis, call: Callable[[AwsConfig], Awaitable[None]], minutes: int
) -> None:
    """STS and the service that is called both refuse what is more than five minutes off."""
    local_kinesis.create_stream("orders", 1)
    refused: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        now = datetime.now(UTC) + timedelta(minutes=minutes)
        signed_at = datetime.strptime(f"{request.headers['X-Amz-Date']}+0000", "%Y%m%dT%H%M%SZ%z")
        body, target = await request.read(), request.headers.get("X-Amz-Target", "")
        if abs(now - signed_at) > timedelta(minutes=5):
            refused.append(target)
            text = f"Signature {'expired: it' if minutes > 0 else 'not yet current: it'} is"
            if not target:
                response = _xml(403, "SignatureDoesNotMatch", text)
            else:
                error = {"__type": "InvalidSignatureException", "message": text}
                response = web.json_response(error, status=400)
        elif not target:
            response = web.Response(text=_ASSUMED, content_type="text/xml")
        elif target.startswith("DynamoDB"):
            response = web.json_response({"TableNames": []})
        else:
            async with ClientSession(
                local_kinesis.endpoint_url, headers=request.headers
            ) as session:
                one = await session.post("/", data=body)
                headers = {"Content-Type": one.headers["Content-Type"]}
                response = web.Response(status=one.status, body=await one.read(), headers=headers)
        response.headers["Date"] = format_datetime(now)
        return response

    async with _served(answer) as url:
        await call(_aws(url, **_AS_ROLE, **{"role.stsEndpoint": url}))
    assert refused[0] == ""
    assert len(refused) <= 3  # of the data plane, in CBOR and in JSON
