"""Options of the connection to AWS; their keys are those of Flink's AWS connectors."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.choices import CredentialsProvider
from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Choice, Parser, Text

_SECTION = "AWS"
CREDENTIALS_PREFIX: Final = "aws.credentials.provider"
URL = Text(
    accepts="an http or https URL without user name and password",
    pattern=re.compile(r"https?://[^\s/@?#]+(/[^\s@]*)?", re.IGNORECASE),
)


def _text_option(
    name: str,
    doc: str,
    parser: Parser[str] | None = None,
    *,
    secret: bool = False,
    guarded: str | None = None,
) -> Option[str | None]:
    return Option(
        key=f"{CREDENTIALS_PREFIX}.{name}",
        parser=parser or Text(),
        default=None,
        namespace=Namespace.AWS,
        section=_SECTION,
        secret=secret,
        guarded=guarded,
        doc=doc,
    )


REGION: Final[Option[str | None]] = Option(
    key="aws.region",
    parser=Text(
        accepts="a region such as eu-west-1",
        pattern=re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,62}"),
    ),
    default=None,
    namespace=Namespace.AWS,
    section=_SECTION,
    doc="The region; else that of the stream's ARN, of AWS_REGION, or of botocore's chain. One "
    "that contradicts an ARN is an error, except with an aws.endpoint.",
)
ENDPOINT: Final[Option[str | None]] = Option(
    key="aws.endpoint",
    parser=URL,
    default=None,
    namespace=Namespace.AWS,
    section=_SECTION,
    doc="The URL of the Kinesis endpoint, where it is not AWS's own.",
)
CA_BUNDLE: Final[Option[str | None]] = Option(
    key="aws.cabundle",
    parser=Text(accepts="the path of a file with CA certificates in PEM format"),
    default=None,
    namespace=Namespace.AWS,
    section=_SECTION,
    doc="The CA certificates for an https endpoint that is not AWS's own; else those of "
    "AWS_CA_BUNDLE, or of botocore.",
)
PROVIDER: Final[Option[CredentialsProvider | None]] = Option(
    key=CREDENTIALS_PREFIX,
    parser=Choice(members=CredentialsProvider),
    default=None,
    namespace=Namespace.AWS,
    section=_SECTION,
    doc="Where credentials come from; BASIC if both basic keys are there, else AUTO.",
)
ACCESS_KEY_ID: Final = _text_option("basic.accesskeyid", "The access key id of BASIC.", secret=True)
SECRET_KEY: Final = _text_option("basic.secretkey", "The secret key of BASIC.", secret=True)
SESSION_TOKEN: Final = _text_option(
    "basic.sessiontoken", "The session token of BASIC, for temporary credentials.", secret=True
)
# A profile may name a command that prints credentials.
PROFILE_PATH: Final = _text_option("profile.path", "The credentials file of PROFILE.", guarded="")
PROFILE_NAME: Final = _text_option("profile.name", "The profile of PROFILE.")
ROLE_ARN: Final = _text_option(
    "role.arn",
    "The role of ASSUME_ROLE and WEB_IDENTITY_TOKEN.",
    Text(
        accepts="the ARN of a role (arn:aws:iam::<account>:role/<name>)",
        pattern=re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/\S+"),
    ),
)
ROLE_SESSION_NAME: Final = _text_option(
    "role.sessionName",
    "The session name of the assumed role.",
    Text(
        accepts="2 to 64 letters, digits or _+=,.@-", pattern=re.compile(r"[\w+=,.@-]{2,64}", re.A)
    ),
)
ROLE_EXTERNAL_ID: Final = _text_option("role.externalId", "The external id of the assumed role.")
# WEB_IDENTITY_TOKEN sends it the token.
ROLE_STS_ENDPOINT: Final = _text_option(
    "role.stsEndpoint",
    "The URL of the STS endpoint.",
    URL,
    guarded=r"(?i)^(?!https://[a-z0-9.-]+\.amazonaws\.com(\.cn)?/?$)",
)
ROLE_PROVIDER: Final[Option[CredentialsProvider | None]] = Option(
    key=f"{CREDENTIALS_PREFIX}.role.provider",
    parser=Choice(members=CredentialsProvider),
    default=None,
    namespace=Namespace.AWS,
    section=_SECTION,
    doc="Where the credentials come from that assume the role; takes all keys of "
    "aws.credentials.provider after its own name. BASIC if both basic keys are there, else AUTO.",
)
WEB_IDENTITY_TOKEN_FILE: Final = _text_option(
    "webIdentityToken.file", "The token file of WEB_IDENTITY_TOKEN.", guarded=""
)
CUSTOM_CLASS: Final = _text_option(
    "custom.class",
    "The class of CUSTOM: called with the properties, its load() returns the credentials.",
    Text(accepts="module:Class", pattern=re.compile(r"[\w.]+:[\w.]+")),
    guarded="",
)

NESTABLE: Final = (
    ACCESS_KEY_ID,
    SECRET_KEY,
    SESSION_TOKEN,
    PROFILE_PATH,
    PROFILE_NAME,
    ROLE_ARN,
    ROLE_SESSION_NAME,
    ROLE_EXTERNAL_ID,
    ROLE_STS_ENDPOINT,
    ROLE_PROVIDER,
    WEB_IDENTITY_TOKEN_FILE,
    CUSTOM_CLASS,
)
"""What may also stand after ``aws.credentials.provider.role.provider``, at any depth."""

OPTIONS: Final = (REGION, ENDPOINT, CA_BUNDLE, PROVIDER, *NESTABLE)
