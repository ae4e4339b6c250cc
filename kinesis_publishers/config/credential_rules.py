"""Which credential options each provider needs, at every depth of role providers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.config.catalogue import nested_option
from kinesis_publishers.config.choices import CredentialsProvider
from kinesis_publishers.config.options import aws
from kinesis_publishers.errors import ConfigError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.config.option import Lookup, Option

__all__ = ["credential_problems", "effective_provider", "has_source_provider"]

_REQUIRED: Final = MappingProxyType(
    {
        CredentialsProvider.BASIC: (aws.ACCESS_KEY_ID, aws.SECRET_KEY),
        CredentialsProvider.ASSUME_ROLE: (aws.ROLE_ARN,),
        CredentialsProvider.CUSTOM: (aws.CUSTOM_CLASS,),
    }
)


def effective_provider(lookup: Lookup, depth: int = 0) -> CredentialsProvider:
    """Return the provider ``depth`` role providers further in: what is set, else what is implied.

    Both basic keys imply BASIC, and one of them alone does too: it is then reported as incomplete,
    where a silent AUTO would read with somebody else's credentials.
    """
    provider: CredentialsProvider | None = lookup.get(nested_option(aws.PROVIDER, depth))
    if provider is not None:
        return provider
    basic = (nested_option(option, depth) for option in (aws.ACCESS_KEY_ID, aws.SECRET_KEY))
    if any(lookup.is_given(option) for option in basic):
        return CredentialsProvider.BASIC
    return CredentialsProvider.AUTO


def has_source_provider(lookup: Lookup, depth: int) -> bool:
    """Return whether anything says how the credentials that assume the role are found."""
    nested = (aws.PROVIDER, aws.ACCESS_KEY_ID, aws.SECRET_KEY)
    return any(lookup.is_given(nested_option(option, depth + 1)) for option in nested)


def credential_problems(lookup: Lookup, depth: int = 0) -> Iterator[ConfigError]:
    """Yield what is missing for the provider at ``depth``, and for those inside it."""
    if lookup.is_refused(nested_option(aws.PROVIDER, depth)):
        return
    provider = effective_provider(lookup, depth)
    required: tuple[Option[Any], ...] = _REQUIRED.get(provider, ())
    for option in (nested_option(option, depth) for option in required):
        if not lookup.is_given(option):
            chosen = lookup.written_key(nested_option(aws.PROVIDER, depth))
            yield MissingOptionError(
                f"{option.full_key} is required: the credentials of {chosen} are {provider.value}"
            )
    if provider is CredentialsProvider.ASSUME_ROLE:
        yield from credential_problems(lookup, depth + 1)
