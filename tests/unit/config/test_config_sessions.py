"""Sessions of botocore and of aiobotocore sign with the configured credentials."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import types
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from aiobotocore.session import AioSession
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import ProfileNotFound
from botocore.session import Session

from kinesis_publishers.aws.credentials import RenewedInThread, build_aio_session, build_session
from kinesis_publishers.config import AwsConfig, Properties
from kinesis_publishers.errors import CredentialsError, MissingOptionError, PluginLoadError

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX = "aws.credentials.provider"
_ROLE_ARN = "arn:aws:iam::123456789012:role/reader"
_BUILDS = {Session: build_session, AioSession: build_aio_session}
_KINDS = pytest.mark.parametrize("kind", [Session, AioSession])


def _build(kind: type, values: dict[str, str]) -> Any:
    keys = {f"{_PREFIX}.{key}" if key else _PREFIX: value for key, value in values.items()}
    properties = Properties.parse({"aws.region": "eu-west-1", **keys}, complete=False)
    return _BUILDS[kind](AwsConfig.from_properties(properties))


def _credentials(session: Any) -> Any:
    """Return the frozen credentials of either kind of session, None for none."""

    async def resolve() -> Any:
        credentials = session.get_credentials()
        if inspect.isawaitable(credentials):
            credentials = await credentials
        if credentials is None:
            return None
        frozen = credentials.get_frozen_credentials()
        return await frozen if inspect.isawaitable(frozen) else frozen

    return asyncio.run(resolve())


def _caller(session: Any, endpoint_url: str) -> str:
    """Return the ARN as whom a client of either kind of session calls."""

    async def call() -> str:
        async with session.create_client("sts", endpoint_url=endpoint_url) as client:
            return str((await client.get_caller_identity())["Arn"])

    if isinstance(session, AioSession):
        return asyncio.run(call())
    client = boto3.Session(botocore_session=session).client("sts", endpoint_url=endpoint_url)
    return str(client.get_caller_identity()["Arn"])


@_KINDS
def test_basic(kind: type) -> None:
    values = {"basic.accesskeyid": "A", "basic.secretkey": "S", "basic.sessiontoken": "T"}
    session = _build(kind, values)
    assert _credentials(session)[:3] == ("A", "S", "T")
    assert session.get_config_variable("region") == "eu-west-1"


@_KINDS
def test_auto_leaves_the_chain_as_it_is(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _credentials(_build(kind, {})) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    assert _credentials(_build(kind, {})).access_key == "E"


@_KINDS
def test_env_var_reads_nothing_but_the_environment(
    kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = F\naws_secret_access_key = S\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    assert _credentials(_build(kind, {"": "ENV_VAR"})) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    assert _credentials(_build(kind, {"": "ENV_VAR"})).access_key == "E"


@_KINDS
def test_profile_reads_the_named_profile_of_the_named_file(
    kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    path = tmp_path / "mine"
    path.write_text("[dev]\naws_access_key_id = P\naws_secret_access_key = S\n")
    values = {"": "PROFILE", "profile.path": str(path), "profile.name": "dev"}
    assert _credentials(_build(kind, values)).access_key == "P"


@_KINDS
def test_a_profile_that_does_not_exist_is_an_error(kind: type) -> None:
    with pytest.raises(ProfileNotFound):
        _credentials(_build(kind, {"": "PROFILE", "profile.name": "absent"}))


@_KINDS
def test_assume_role_calls_as_the_role(kind: type, moto_url: str) -> None:
    session = _build(
        kind,
        {
            "": "ASSUME_ROLE",
            "role.arn": _ROLE_ARN,
            "role.sessionName": "my-session",
            "role.externalId": "external",
            "role.stsEndpoint": moto_url,
            "role.provider.basic.accesskeyid": "A",
            "role.provider.basic.secretkey": "S",
        },
    )
    seen: list[dict[str, str]] = []

    def record(params: dict[str, str], **_: Any) -> None:
        seen.append(dict(params))

    if kind is AioSession:
        # The one that calls STS.
        (session_of_botocore,) = session.get_component("credential_provider").load_credentials.args
        session_of_botocore.register("provide-client-params.sts.AssumeRole", record)
    session.register("provide-client-params.sts.AssumeRole", record)
    assert _caller(session, moto_url).endswith("assumed-role/reader/my-session")
    assert seen == [
        {"RoleArn": _ROLE_ARN, "RoleSessionName": "my-session", "ExternalId": "external"}
    ]
    frozen = _credentials(session)
    assert frozen.access_key not in {"A", ""}
    assert frozen.token


@_KINDS
def test_a_role_may_assume_a_role(kind: type, moto_url: str) -> None:
    session = _build(
        kind,
        {
            "": "ASSUME_ROLE",
            "role.arn": _ROLE_ARN,
            "role.sessionName": "outer",
            "role.stsEndpoint": moto_url,
            "role.provider": "ASSUME_ROLE",
            "role.provider.role.arn": f"{_ROLE_ARN}-first",
            "role.provider.role.stsEndpoint": moto_url,
            "role.provider.role.provider.basic.accesskeyid": "A",
            "role.provider.role.provider.basic.secretkey": "S",
        },
    )
    assert _caller(session, moto_url).endswith("assumed-role/reader/outer")


@_KINDS
def test_a_role_without_anybody_to_assume_it_is_an_error_that_says_so(
    kind: type, moto_url: str
) -> None:
    values = {"": "ASSUME_ROLE", "role.arn": _ROLE_ARN, "role.stsEndpoint": moto_url}
    with pytest.raises(CredentialsError, match=f"no credentials to assume {_ROLE_ARN}"):
        _credentials(_build(kind, values))


@_KINDS
def test_web_identity_token(kind: type, moto_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("token")
    session = _build(
        kind,
        {
            "": "WEB_IDENTITY_TOKEN",
            "role.arn": _ROLE_ARN,
            "role.sessionName": "pod",
            "role.stsEndpoint": moto_url,
            "webIdentityToken.file": str(token),
        },
    )
    assert _caller(session, moto_url).endswith("assumed-role/reader/pod")


@_KINDS
@pytest.mark.parametrize("given", ["role.arn", "webIdentityToken.file"])
def test_a_web_identity_without_token_or_role_is_an_error(kind: type, given: str) -> None:
    values = {"": "WEB_IDENTITY_TOKEN", given: _ROLE_ARN}
    with pytest.raises(MissingOptionError, match="in the environment"):
        _build(kind, values)


class _Loaded:
    """Credentials that renew themselves."""

    secret_key = "S"
    token = None
    reads = 0

    @property
    def access_key(self) -> str:
        self.reads += 1
        return f"C{self.reads}"


class _Custom:
    def __init__(self, properties: dict[str, Any]) -> None:
        assert properties["aws.region"] == "eu-west-1"

    def load(self) -> object:
        return _Loaded()


class _Standard(_Custom):
    def load(self) -> object:
        return Credentials("K", "S", "T")


class _Incomplete(_Custom):
    def load(self) -> object:
        return types.SimpleNamespace(access_key="A")


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.SimpleNamespace(
        Custom=_Custom, Standard=_Standard, Incomplete=_Incomplete, Other=_Loaded
    )
    monkeypatch.setitem(sys.modules, "credentials_under_test", module)


def _custom(kind: type, name: str) -> Any:
    return _build(kind, {"": "CUSTOM", "custom.class": f"credentials_under_test:{name}"})


@_KINDS
@pytest.mark.usefixtures("_plugin")
def test_custom_credentials_are_read_again_for_every_request(kind: type) -> None:
    session = _custom(kind, "Custom")
    first, second = _credentials(session), _credentials(session)
    assert first.access_key != second.access_key
    assert first.access_key.startswith("C")
    assert first.secret_key == "S"


@_KINDS
@pytest.mark.usefixtures("_plugin")
def test_a_custom_class_may_return_botocore_s_own_credentials(kind: type) -> None:
    assert _credentials(_custom(kind, "Standard"))[:3] == ("K", "S", "T")


@_KINDS
@pytest.mark.usefixtures("_plugin")
@pytest.mark.parametrize(
    ("name", "message"), [("Incomplete", "without secret_key"), ("Other", r"no load\(\)")]
)
def test_a_custom_class_that_does_not_fit_says_what_is_missing(
    kind: type, name: str, message: str
) -> None:
    with pytest.raises(PluginLoadError, match=message):
        _credentials(_custom(kind, name))


async def test_calls_go_on_with_what_is_valid_while_one_of_them_renews() -> None:
    """A renewal that hangs, as in an outage of STS, holds up one call until the last minutes."""
    has_begun, is_answered = threading.Event(), threading.Event()
    end = datetime(2026, 1, 1, 12, tzinfo=UTC)
    now, renewals = end - timedelta(hours=1), 0

    def renew() -> dict[str, str]:
        nonlocal renewals
        renewals += 1
        has_begun.set()
        assert is_answered.wait(30)
        later = (end + timedelta(hours=1)).isoformat()
        return {"access_key": "new", "secret_key": "S", "token": "T", "expiry_time": later}

    old = RefreshableCredentials("old", "S", "T", end, renew, "role", time_fetcher=lambda: now)
    credentials = RenewedInThread(old)
    assert (await credentials.get_frozen_credentials()).access_key == "old"
    # botocore may renew in the last 15 minutes, and has to in the last 10.
    now = end - timedelta(minutes=12)
    renewing = asyncio.create_task(credentials.get_frozen_credentials())
    assert await asyncio.to_thread(has_begun.wait, 30)
    try:
        others = [credentials.get_frozen_credentials() for _ in range(10)]
        async with asyncio.timeout(30):
            assert {one.access_key for one in await asyncio.gather(*others)} == {"old"}
    finally:
        is_answered.set()
    assert (await renewing).access_key == "new"
    assert (await credentials.get_frozen_credentials()).access_key == "new"
    assert renewals == 1
