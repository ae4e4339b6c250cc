"""The connection to AWS: where Kinesis is, and where credentials come from.

The keys are those of Flink's AWS connectors. What makes a session of botocore use them is in
:mod:`kinesis_publishers.aws.credentials`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson
from attrs import evolve, field

from kinesis_publishers.config.option import Derived, Lookup, Option, Section
from kinesis_publishers.config.parsers import URL, Choice, Text
from kinesis_publishers.errors import ConfigError, MissingOptionError

CREDENTIALS_PREFIX: Final = "aws.credentials.provider"


def _domains() -> tuple[str, ...]:
    # Read from a file of botocore, which is slow to import.
    spec: Any = find_spec("botocore")
    (folder,) = spec.submodule_search_locations
    data = orjson.loads(Path(folder, "data", "partitions.json").read_bytes())
    outputs = [one["outputs"] for one in data["partitions"]]
    kinds = ("dnsSuffix", "dualStackDnsSuffix")
    return tuple(sorted({f".{one[kind]}" for one in outputs for kind in kinds}))


#: Domains of AWS's public endpoints and of VPC endpoints, in all partitions.
AWS_DOMAINS: Final = _domains()
#: One of them, as a regular expression.
ANY_AWS_DOMAIN: Final = f"(?:{'|'.join(map(re.escape, AWS_DOMAINS))})"


class AwsConfig(Section, section="AWS"):
    """The endpoint and region of Kinesis, and the credentials for it."""

    region: Option[str | None] = Option(
        key="aws.region",
        parser=Text(accepts="a region such as eu-west-1", pattern=r"[a-zA-Z0-9][a-zA-Z0-9-]{0,62}"),
        doc="The region. The default is that of the stream's ARN, of AWS_REGION, or of botocore's "
        "chain. A region that contradicts an ARN is an error, unless aws.endpoint is set.",
    )
    endpoint_url: Option[str | None] = Option(
        key="aws.endpoint", parser=URL, doc="The URL of a Kinesis endpoint other than AWS's own."
    )
    ca_bundle: Option[str | None] = Option(
        key="aws.cabundle",
        parser=Text(accepts="the path of a file with CA certificates in PEM format"),
        doc="The CA certificates for an https endpoint that is not AWS's own. The default is "
        "AWS_CA_BUNDLE, or botocore's.",
    )
    credentials: Derived[CredentialsConfig] = Derived(
        lambda lookup: CredentialsConfig.from_properties(lookup)
    )
    max_connections: Option[int] = Option(
        key="stream.efo.http-client.max-concurrency",
        default=10_000,
        section="Enhanced fan-out",
        doc="The connection limit of the data plane, and of subscriptions over HTTP/1.1. Over "
        "HTTP/2 each subscription has its own connection, without a limit.",
    )


class CredentialsProvider(Enum):
    AUTO = "AUTO"
    BASIC = "BASIC"
    ENV_VAR = "ENV_VAR"
    PROFILE = "PROFILE"
    ASSUME_ROLE = "ASSUME_ROLE"
    WEB_IDENTITY_TOKEN = "WEB_IDENTITY_TOKEN"
    CUSTOM = "CUSTOM"


def _credential(name: str, doc: str, **more: Any) -> Option[str | None]:
    return Option(key=f"{CREDENTIALS_PREFIX}.{name}", doc=doc, **{"parser": Text(), **more})


class CredentialsConfig(Section, section="AWS"):
    """One provider of credentials with its settings; only its own fields are set.

    ``source`` is the provider of the credentials that assume the role, and ``properties`` are the
    argument of the class of CUSTOM. Secrets are masked in ``repr``.
    """

    provider_option: ClassVar[Option[CredentialsProvider | None]] = Option(
        key=CREDENTIALS_PREFIX,
        parser=Choice(members=CredentialsProvider),
        doc="Where credentials come from. The default is BASIC if both basic keys are set, "
        "otherwise AUTO.",
    )
    provider: CredentialsProvider = CredentialsProvider.AUTO
    access_key_id: Option[str | None] = _credential(
        "basic.accesskeyid", "The access key id of BASIC.", secret=True
    )
    secret_key: Option[str | None] = _credential(
        "basic.secretkey", "The secret key of BASIC.", secret=True
    )
    session_token: Option[str | None] = _credential(
        "basic.sessiontoken", "The session token of BASIC, for temporary credentials.", secret=True
    )
    # A profile may run a command for credentials.
    profile_path: Option[str | None] = _credential(
        "profile.path", "The credentials file of PROFILE.", guarded=""
    )
    profile_name: Option[str | None] = _credential("profile.name", "The profile of PROFILE.")
    role_arn: Option[str | None] = _credential(
        "role.arn",
        "The role of ASSUME_ROLE and WEB_IDENTITY_TOKEN.",
        parser=Text(
            accepts="the ARN of a role (arn:aws:iam::<account>:role/<name>)",
            pattern=r"arn:aws[a-z-]*:iam::[0-9]{12}:role/\S+",
        ),
    )
    role_session_name: Option[str | None] = _credential(
        "role.sessionName",
        "The session name of the assumed role.",
        parser=Text(
            accepts="2 to 64 letters, digits or _+=,.@-", pattern=r"[a-zA-Z0-9_+=,.@-]{2,64}"
        ),
    )
    role_external_id: Option[str | None] = _credential(
        "role.externalId", "The external id of the assumed role."
    )
    # WEB_IDENTITY_TOKEN sends it the token.
    sts_endpoint_url: Option[str | None] = _credential(
        "role.stsEndpoint",
        "The URL of the STS endpoint.",
        parser=URL,
        guarded=rf"(?i)^(?!https://[a-z0-9.-]+{ANY_AWS_DOMAIN}/?$)",
    )
    role_provider: ClassVar[Option[CredentialsProvider | None]] = Option(
        key=f"{CREDENTIALS_PREFIX}.role.provider",
        parser=Choice(members=CredentialsProvider),
        doc="Where the credentials that assume the role come from. All keys of "
        "aws.credentials.provider are accepted below its name, with the same defaults.",
    )
    source: CredentialsConfig | None = None
    web_identity_token_file: Option[str | None] = _credential(
        "webIdentityToken.file", "The token file of WEB_IDENTITY_TOKEN.", guarded=""
    )
    custom_class: Option[str | None] = _credential(
        "custom.class",
        "The class of CUSTOM. It is called with the properties, and its load() returns the "
        "credentials.",
        parser=Text(accepts="module:Class", pattern=r"[\w.]+:[\w.]+"),
        guarded="",
    )
    properties: Lookup | None = field(default=None, repr=False)

    @classmethod
    def from_properties(
        cls, properties: Lookup, *, depth: int = 0, provider: CredentialsProvider | None = None
    ) -> CredentialsConfig:
        """Read ``provider``, by default the one that applies below ``depth`` role providers."""
        provider = provider or _effective_provider(properties, depth)
        values: dict[str, Any] = {
            name: properties.get(nested_option(getattr(cls, name), depth))
            for name in _FIELDS.get(provider, ())
        }
        if provider is CredentialsProvider.CUSTOM:
            values["properties"] = properties
        elif provider is CredentialsProvider.ASSUME_ROLE:
            values["source"] = _source_of_role(properties, depth)
        return cls(provider=provider, **values)


_BASIC: Final = (CredentialsConfig.access_key_id, CredentialsConfig.secret_key)
_ROLE: Final = ("role_arn", "role_session_name", "sts_endpoint_url")
_FIELDS: Final = {
    CredentialsProvider.BASIC: ("access_key_id", "secret_key", "session_token"),
    CredentialsProvider.PROFILE: ("profile_path", "profile_name"),
    CredentialsProvider.ASSUME_ROLE: (*_ROLE, "role_external_id"),
    CredentialsProvider.WEB_IDENTITY_TOKEN: (*_ROLE, "web_identity_token_file"),
    CredentialsProvider.CUSTOM: ("custom_class",),
}
_REQUIRED: Final = {
    CredentialsProvider.BASIC: _BASIC,
    CredentialsProvider.ASSUME_ROLE: (CredentialsConfig.role_arn,),
    CredentialsProvider.CUSTOM: (CredentialsConfig.custom_class,),
}


def nested_option(option: Option[Any], depth: int) -> Option[Any]:
    """Return the credentials ``option`` at ``depth`` nested role providers."""
    deeper = CREDENTIALS_PREFIX + ".role.provider" * depth
    return evolve(option, key=option.key.replace(CREDENTIALS_PREFIX, deeper, 1))


def _effective_provider(lookup: Lookup, depth: int) -> CredentialsProvider:
    """Return the provider at ``depth`` nested role providers: the configured or the implied one.

    Both basic keys imply BASIC. A single one does too, and is reported as incomplete: a silent AUTO
    would read with other credentials.
    """
    provider: CredentialsProvider | None = lookup.get(
        nested_option(CredentialsConfig.provider_option, depth)
    )
    if provider is not None:
        return provider
    if any(lookup.is_given(nested_option(option, depth)) for option in _BASIC):
        return CredentialsProvider.BASIC
    return CredentialsProvider.AUTO


def _source_of_role(properties: Lookup, depth: int) -> CredentialsConfig:
    """Return what assumes the role: the role provider, else the adjacent basic keys, else AUTO."""
    provider = CredentialsConfig.provider_option
    inner = [nested_option(option, depth + 1) for option in (provider, *_BASIC)]
    basic = [nested_option(option, depth) for option in _BASIC]
    if any(map(properties.is_given, inner)) or not all(map(properties.is_given, basic)):
        return CredentialsConfig.from_properties(properties, depth=depth + 1)
    return CredentialsConfig.from_properties(
        properties, depth=depth, provider=CredentialsProvider.BASIC
    )


def credential_problems(lookup: Lookup, depth: int = 0) -> Iterator[ConfigError]:
    """Yield what is missing for the provider at ``depth``, and for those inside it."""
    chosen = nested_option(CredentialsConfig.provider_option, depth)
    if lookup.is_refused(chosen):
        return
    provider = _effective_provider(lookup, depth)
    for option in (nested_option(one, depth) for one in _REQUIRED.get(provider, ())):
        if not lookup.is_given(option):
            yield MissingOptionError(
                f"{option.full_key} is required: the credentials of {lookup.written_key(chosen)} "
                f"are {provider.value}"
            )
    if provider is CredentialsProvider.ASSUME_ROLE:
        yield from credential_problems(lookup, depth + 1)
