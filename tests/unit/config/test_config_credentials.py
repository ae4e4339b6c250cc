"""Which credentials are configured, and what each provider needs."""

from __future__ import annotations

import pytest

from kinesis_publishers.config import CredentialsConfig, CredentialsProvider, Properties
from kinesis_publishers.errors import ConfigErrors, MissingOptionError

_PREFIX = "aws.credentials.provider"
_ROLE_ARN = "arn:aws:iam::123456789012:role/reader"


def _parse(values: dict[str, str]) -> Properties:
    keys = {f"{_PREFIX}.{key}" if key else _PREFIX: value for key, value in values.items()}
    return Properties.parse(keys, complete=False)


def _credentials(values: dict[str, str]) -> CredentialsConfig:
    return CredentialsConfig.from_properties(_parse(values))


def test_without_any_key_botocore_s_chain_is_used() -> None:
    assert _credentials({}) == CredentialsConfig(provider=CredentialsProvider.AUTO)


def test_both_basic_keys_imply_basic() -> None:
    assert _credentials({"basic.accesskeyid": "A", "basic.secretkey": "S"}) == CredentialsConfig(
        provider=CredentialsProvider.BASIC, access_key_id="A", secret_key="S"
    )


def test_a_named_provider_goes_before_the_basic_keys() -> None:
    values = {"": "env_var", "basic.accesskeyid": "A", "basic.secretkey": "S"}
    assert _credentials(values) == CredentialsConfig(provider=CredentialsProvider.ENV_VAR)


def test_keys_are_matched_without_regard_to_case() -> None:
    values = {"": "web_identity_token", "webidentitytoken.FILE": "/t", "role.sessionname": "me"}
    assert _credentials(values) == CredentialsConfig(
        provider=CredentialsProvider.WEB_IDENTITY_TOKEN,
        web_identity_token_file="/t",
        role_session_name="me",
    )


def test_role_providers_nest() -> None:
    config = _credentials(
        {
            "": "ASSUME_ROLE",
            "role.arn": _ROLE_ARN,
            "role.externalId": "outer",
            "role.provider": "ASSUME_ROLE",
            "role.provider.role.arn": f"{_ROLE_ARN}2",
            "role.provider.role.provider": "PROFILE",
            "role.provider.role.provider.profile.name": "dev",
        }
    )
    assert config == CredentialsConfig(
        provider=CredentialsProvider.ASSUME_ROLE,
        role_arn=_ROLE_ARN,
        role_external_id="outer",
        source=CredentialsConfig(
            provider=CredentialsProvider.ASSUME_ROLE,
            role_arn=f"{_ROLE_ARN}2",
            source=CredentialsConfig(provider=CredentialsProvider.PROFILE, profile_name="dev"),
        ),
    )


@pytest.mark.parametrize("prefix", ["", "role.provider."])
def test_basic_keys_assume_the_role_from_either_place(prefix: str) -> None:
    config = _credentials(
        {
            "": "ASSUME_ROLE",
            "role.arn": _ROLE_ARN,
            f"{prefix}basic.accesskeyid": "A",
            f"{prefix}basic.secretkey": "S",
        }
    )
    assert config.source == CredentialsConfig(
        provider=CredentialsProvider.BASIC, access_key_id="A", secret_key="S"
    )


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"": "BASIC"}, ["basic.accesskeyid", "basic.secretkey"]),
        ({"": "BASIC", "basic.accesskeyid": "A"}, ["basic.secretkey"]),
        ({"basic.accesskeyid": "A"}, ["basic.secretkey"]),
        ({"basic.secretkey": "S"}, ["basic.accesskeyid"]),
        ({"": "ASSUME_ROLE"}, ["role.arn"]),
        ({"": "CUSTOM"}, ["custom.class"]),
        (
            {"": "ASSUME_ROLE", "role.arn": _ROLE_ARN, "role.provider": "BASIC"},
            ["role.provider.basic.accesskeyid", "role.provider.basic.secretkey"],
        ),
    ],
)
def test_what_a_provider_lacks_is_named(values: dict[str, str], missing: list[str]) -> None:
    with pytest.raises(ConfigErrors) as caught:
        _parse(values)
    problems = caught.value.problems
    assert [str(problem).partition(" ")[0] for problem in problems] == [
        f"{_PREFIX}.{key}" for key in missing
    ]
    assert all(isinstance(problem, MissingOptionError) for problem in problems)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("role.arn", "reader"),
        ("role.sessionName", "x"),
        ("custom.class", "package.Class"),
        ("role.stsEndpoint", "sts.amazonaws.com"),
        ("", "SYS_PROP"),
    ],
)
def test_a_malformed_value_is_an_error(key: str, value: str) -> None:
    with pytest.raises(ConfigErrors, match="expected"):
        _parse({key: value})


@pytest.mark.parametrize("key", ["role.provider.region", "role.provider.nothing", "role.provider."])
def test_only_credential_options_nest(key: str) -> None:
    with pytest.raises(ConfigErrors, match="unknown option"):
        _parse({key: "x"})
