"""Sessions of botocore sign with the configured credentials."""

from __future__ import annotations

import sys
import types
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ProfileNotFound
from botocore.session import Session

from kinesis_publishers.aws.credentials import build_session
from kinesis_publishers.config import AwsConfig, Properties
from kinesis_publishers.errors import CredentialsError, MissingOptionError, PluginLoadError

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX = "aws.credentials.provider"
_ROLE_ARN = "arn:aws:iam::123456789012:role/reader"


def _build(values: dict[str, str]) -> Any:
    keys = {f"{_PREFIX}.{key}" if key else _PREFIX: value for key, value in values.items()}
    properties = Properties.parse({"aws.region": "eu-west-1", **keys}, complete=False)
    return build_session(Session(), AwsConfig.from_properties(properties))


def _credentials(session: Session) -> Any:
    """Return the frozen credentials, ``None`` for none."""
    credentials = session.get_credentials()
    return None if credentials is None else credentials.get_frozen_credentials()


def _caller(session: Session, endpoint_url: str) -> str:
    """Return the ARN as whom a client calls."""
    with closing(session.create_client("sts", endpoint_url=endpoint_url)) as client:
        return str(client.get_caller_identity()["Arn"])


def test_basic() -> None:
    values = {"basic.accesskeyid": "A", "basic.secretkey": "S", "basic.sessiontoken": "T"}
    session = _build(values)
    assert _credentials(session)[:3] == ("A", "S", "T")
    assert session.get_config_variable("region") == "eu-west-1"


def test_auto_leaves_the_chain_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _credentials(_build({})) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    assert _credentials(_build({})).access_key == "E"


def test_env_var_reads_nothing_but_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = F\naws_secret_access_key = S\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    assert _credentials(_build({"": "ENV_VAR"})) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    assert _credentials(_build({"": "ENV_VAR"})).access_key == "E"


def test_profile_reads_the_named_profile_of_the_named_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    path = tmp_path / "mine"
    path.write_text("[dev]\naws_access_key_id = P\naws_secret_access_key = S\n")
    values = {"": "PROFILE", "profile.path": str(path), "profile.name": "dev"}
    assert _credentials(_build(values)).access_key == "P"


def test_a_profile_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ProfileNotFound):
        _credentials(_build({"": "PROFILE", "profile.name": "absent"}))


def test_assume_role_calls_as_the_role(moto_url: str) -> None:
    session = _build(
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

    session.register("provide-client-params.sts.AssumeRole", record)
    assert _caller(session, moto_url).endswith("assumed-role/reader/my-session")
    assert seen == [
        {"RoleArn": _ROLE_ARN, "RoleSessionName": "my-session", "ExternalId": "external"}
    ]
    frozen = _credentials(session)
    assert frozen.access_key not in {"A", ""}
    assert frozen.token


def test_a_role_may_assume_a_role(moto_url: str) -> None:
    session = _build(
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


def test_a_role_without_anybody_to_assume_it_is_an_error_that_says_so(moto_url: str) -> None:
    values = {"": "ASSUME_ROLE", "role.arn": _ROLE_ARN, "role.stsEndpoint": moto_url}
    with pytest.raises(CredentialsError, match=f"no credentials to assume {_ROLE_ARN}"):
        _credentials(_build(values))


def test_web_identity_token(moto_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("token")
    session = _build(
        {
            "": "WEB_IDENTITY_TOKEN",
            "role.arn": _ROLE_ARN,
            "role.sessionName": "pod",
            "role.stsEndpoint": moto_url,
            "webIdentityToken.file": str(token),
        },
    )
    assert _caller(session, moto_url).endswith("assumed-role/reader/pod")


@pytest.mark.parametrize("given", ["role.arn", "webIdentityToken.file"])
def test_a_web_identity_without_token_or_role_is_an_error(given: str) -> None:
    values = {"": "WEB_IDENTITY_TOKEN", given: _ROLE_ARN}
    with pytest.raises(MissingOptionError, match="in the environment"):
        _build(values)


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


def _custom(name: str) -> Any:
    return _build({"": "CUSTOM", "custom.class": f"credentials_under_test:{name}"})


@pytest.mark.usefixtures("_plugin")
def test_custom_credentials_are_read_again_for_every_request() -> None:
    session = _custom("Custom")
    first, second = _credentials(session), _credentials(session)
    assert first.access_key != second.access_key
    assert first.access_key.startswith("C")
    assert first.secret_key == "S"


@pytest.mark.usefixtures("_plugin")
def test_a_custom_class_may_return_botocore_s_own_credentials() -> None:
    assert _credentials(_custom("Standard"))[:3] == ("K", "S", "T")


@pytest.mark.usefixtures("_plugin")
@pytest.mark.parametrize(
    ("name", "message"), [("Incomplete", "without secret_key"), ("Other", r"no load\(\)")]
)
def test_a_custom_class_that_does_not_fit_says_what_is_missing(name: str, message: str) -> None:
    with pytest.raises(PluginLoadError, match=message):
        _credentials(_custom(name))
