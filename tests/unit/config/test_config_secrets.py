"""A secret is shown by no message, ``repr`` or ``str``."""

from __future__ import annotations

import string
import traceback
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws.carriers.carrier import Endpoint, SignedCall
from kinesis_publishers.config import AwsConfig, Properties
from kinesis_publishers.config.assignments import assign_properties
from kinesis_publishers.config.option import Entry
from kinesis_publishers.errors import ConfigErrors

_BASIC = "aws.credentials.provider.basic"
_NESTED = "aws.credentials.provider.role.provider.basic"
_SECRETS = st.text(alphabet=string.ascii_letters + string.digits + "/+=", min_size=8).map(
    lambda text: f"Secret#{text}"  # a text that no message contains by chance
)


def _texts(*values: object) -> str:
    return "\n".join(text for value in values for text in (repr(value), str(value), f"{value}"))


@given(_SECRETS, _SECRETS, _SECRETS)
def test_no_object_shows_a_secret(key_id: str, secret: str, token: str) -> None:
    for prefix in (_BASIC, _NESTED):
        values = {
            f"{prefix}.accesskeyid": key_id,
            f"{prefix}.secretkey": secret,
            f"{prefix}.sessiontoken": token,
        }
        if prefix == _NESTED:
            values["aws.credentials.provider"] = "ASSUME_ROLE"
            values["aws.credentials.provider.role.arn"] = "arn:aws:iam::123456789012:role/r"
        properties = Properties.parse(values, complete=False)
        config = AwsConfig.from_properties(properties)
        shown = _texts(
            properties,
            config,
            config.credentials,
            config.credentials.source,
            assign_properties(values.items()),
            Entry(value=token, raw=token, written_key=prefix, full_key=prefix, secret=True),
        )
        assert "Secret#" not in shown
        assert "***" in shown


@given(_SECRETS, st.sampled_from([_BASIC, _NESTED]))
def test_no_error_shows_a_secret(secret: str, prefix: str) -> None:
    key = f"{prefix}.secretkey"
    with pytest.raises(ConfigErrors) as caught:
        Properties.parse(
            {
                key: secret,
                key.upper(): f"{secret}2",
                f"{prefix}.secretkye": secret,
                f"{prefix}.sessiontoken": [secret],  # type: ignore[dict-item]
                f"{prefix}.accesskeyid": {secret: secret},  # type: ignore[dict-item]
            }
        )
    error = caught.value
    shown = _texts(error, *error.problems, "".join(traceback.format_exception(error)))
    assert "Secret#" not in shown
    assert "differ" in shown
    assert "got ***" in shown


@pytest.mark.parametrize(
    "user", ["me:Secret@", "me:1/Secret@", "me:1#Secret@", "me:a'Secret@", "["]
)
def test_the_password_in_an_endpoint_is_not_shown(user: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        Properties.parse({"aws.endpoint": f"https://{user}host/"}, complete=False)
    assert "Secret" not in str(caught.value)
    assert f"https://{user if user == '[' else '***@'}host/" in str(caught.value)


def test_the_password_in_a_url_that_is_no_stream_is_not_shown() -> None:
    with pytest.raises(ConfigErrors, match=r"'https://\*\*\*@host' is neither the name") as caught:
        Properties.parse({"kinesis.streams": "https://me:Secret@host"}, complete=False)
    assert "Secret" not in str(caught.value)


def test_a_custom_class_s_properties_are_not_shown() -> None:
    properties = Properties.parse(
        {
            "aws.credentials.provider": "CUSTOM",
            "aws.credentials.provider.custom.class": "a:B",
            f"{_BASIC}.secretkey": "Secret",
        },
        complete=False,
    )
    config = AwsConfig.from_properties(properties)
    assert "Secret" not in _texts(config, properties)
    assert config.credentials.properties == properties


def test_the_password_of_a_proxy_is_not_shown() -> None:
    endpoint = Endpoint(url="https://host/", proxy_url="http://me:Secret@proxy:3128")
    assert "Secret" not in _texts(endpoint)
    assert "http://***@proxy:3128" in repr(endpoint)


def test_the_headers_of_a_signed_call_are_not_shown() -> None:
    headers = {"x-amz-security-token": "Secret", "authorization": "Secret"}
    call = SignedCall(
        url="https://host/",
        headers=headers,
        body=b"{}",
        where="shard 0",
        signed_at=datetime.now(UTC),
    )
    assert "Secret" not in _texts(call)
