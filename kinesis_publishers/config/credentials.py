"""The typed view of where credentials come from.

What makes a botocore or aiobotocore session use them is in
:mod:`kinesis_publishers.aws.credentials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from kinesis_publishers.config.catalogue import nested_option
from kinesis_publishers.config.choices import CredentialsProvider
from kinesis_publishers.config.credential_rules import effective_provider, has_source_provider
from kinesis_publishers.config.option import MASK, Option
from kinesis_publishers.config.options import aws

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["CredentialsConfig", "CredentialsProvider"]

_T = TypeVar("_T")


def _mask(value: object) -> str:
    return "None" if value is None else MASK


@frozen(kw_only=True)
class CredentialsConfig:
    """One provider of credentials and what it needs; only its own fields are set.

    Attributes:
        provider: where the credentials come from.
        access_key_id, secret_key, session_token: of BASIC; masked in ``repr``.
        profile_path, profile_name: the credentials file and the profile of PROFILE.
        role_arn, role_session_name: of ASSUME_ROLE and WEB_IDENTITY_TOKEN.
        role_external_id: of ASSUME_ROLE.
        sts_endpoint_url: the STS endpoint of both.
        source: the provider of the credentials that assume the role.
        web_identity_token_file: of WEB_IDENTITY_TOKEN.
        custom_class: the ``module:Class`` of CUSTOM.
        properties: what the class of CUSTOM is called with.
    """

    provider: CredentialsProvider = CredentialsProvider.AUTO
    access_key_id: str | None = field(default=None, repr=_mask)
    secret_key: str | None = field(default=None, repr=_mask)
    session_token: str | None = field(default=None, repr=_mask)
    profile_path: str | None = None
    profile_name: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_endpoint_url: str | None = None
    source: CredentialsConfig | None = None
    web_identity_token_file: str | None = None
    custom_class: str | None = None
    properties: Properties | None = field(default=None, repr=False)

    @classmethod
    def from_properties(cls, properties: Properties, *, depth: int = 0) -> CredentialsConfig:
        """Read the provider.

        Args:
            properties: the configuration.
            depth: how many role providers further in: 0 is ``aws.credentials.provider`` itself, 1
                is ``aws.credentials.provider.role.provider``.
        """
        provider = effective_provider(properties, depth)

        def get(option: Option[_T]) -> _T:
            value: _T = properties.get(nested_option(option, depth))
            return value

        if provider is CredentialsProvider.BASIC:
            return cls(
                provider=provider,
                access_key_id=get(aws.ACCESS_KEY_ID),
                secret_key=get(aws.SECRET_KEY),
                session_token=get(aws.SESSION_TOKEN),
            )
        if provider is CredentialsProvider.PROFILE:
            return cls(
                provider=provider,
                profile_path=get(aws.PROFILE_PATH),
                profile_name=get(aws.PROFILE_NAME),
            )
        if provider is CredentialsProvider.CUSTOM:
            return cls(provider=provider, custom_class=get(aws.CUSTOM_CLASS), properties=properties)
        if provider in {CredentialsProvider.ASSUME_ROLE, CredentialsProvider.WEB_IDENTITY_TOKEN}:
            assumes = provider is CredentialsProvider.ASSUME_ROLE
            return cls(
                provider=provider,
                role_arn=get(aws.ROLE_ARN),
                role_session_name=get(aws.ROLE_SESSION_NAME),
                role_external_id=get(aws.ROLE_EXTERNAL_ID) if assumes else None,
                sts_endpoint_url=get(aws.ROLE_STS_ENDPOINT),
                source=_source_of_role(properties, depth) if assumes else None,
                web_identity_token_file=None if assumes else get(aws.WEB_IDENTITY_TOKEN_FILE),
            )
        return cls(provider=provider)


def _source_of_role(properties: Properties, depth: int) -> CredentialsConfig:
    """Return who assumes the role: the role provider, else the basic keys beside it, else AUTO."""
    basic = tuple(nested_option(option, depth) for option in (aws.ACCESS_KEY_ID, aws.SECRET_KEY))
    if has_source_provider(properties, depth) or not all(map(properties.is_given, basic)):
        return CredentialsConfig.from_properties(properties, depth=depth + 1)
    return CredentialsConfig(
        provider=CredentialsProvider.BASIC,
        access_key_id=properties.get(basic[0]),
        secret_key=properties.get(basic[1]),
        session_token=properties.get(nested_option(aws.SESSION_TOKEN, depth)),
    )
