"""Maps errors of botocore and of the network to this package's, with the table of AWS codes."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
import botocore.exceptions as botocore_errors
from aiobotocore.credentials import AioCredentials
from botocore.credentials import Credentials
from botocore.parsers import ResponseParserError

from kinesis_publishers.config.option import mask_urls
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ConsumerNotFoundError,
    CredentialsError,
    EncryptionKeyError,
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    KinesisPublishersError,
    LimitExceededError,
    MalformedResponseError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)

# What reading an answer raises that is JSON but not AWS's (RuntimeError: botocore's timestamps).
UNREADABLE = (AttributeError, TypeError, ValueError, LookupError, OverflowError, RuntimeError)
_ENDPOINT_ADVICE = "check the endpoint and the proxy"
_CONNECTION_ADVICE = "check aws.region, aws.endpoint (or the checkpoint store's), DNS and the proxy"
_HERE_ADVICE = "nothing listens: check the port (aws.endpoint), or start `kinesis-publishers local`"
_UNTRUSTED = re.compile(r"(?i)certificate.verify.failed|SSLCertVerificationError")
_HERE = re.compile(r"//(127\.|localhost|\[::1\])")
_NO_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or aws.credentials.provider; "
    "a local server takes any"
)
_KEY_ADVICE = "check the access key: AWS does not know it"
_SIGNATURE_ADVICE = "check the secret key, and this machine's clock"
# Codes for a wrong time alone; the texts below also come with codes that have other meanings.
_CODES_OF_SKEW = ("RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture")
_TEXTS_OF_SKEW = ("Signature expired", "Signature not yet current")
# STS could not reach the identity provider, which it reports with the code of a wrong token.
_KEY_NOT_RETRIEVED = "retrieve verification key"
# Codes that are in no table. Together with those, this is what botocore's standard mode repeats.
_RATE = re.compile("Throttl|TooManyRequests|SlowDown|(Bandwidth|Request)LimitExceeded")
_NOT_NOW = re.compile(
    "InternalFailure|InternalServerError|ServiceUnavailable|RequestTimeout(Exception)?$"
    "|PriorRequestNotComplete|TransactionInProgress"
)
# What CloudWatch does not take, and would not take again.
_NOT_VALID = re.compile(
    "InvalidFormat|InvalidParameter|Missing(Required)?Parameter|RequestEntityTooLarge|Validation"
)
_CERTIFICATE_ADVICE = (
    "set aws.cabundle (or AWS_CA_BUNDLE) to the CA certificates of the endpoint, or of the proxy "
    "that opens its connections"
)
# A retry helps where a provider renews the credentials.
_PASSING_CREDENTIAL_CODES = ("ExpiredTokenException", "ExpiredToken", "CredentialRetrievalError")

_NO_CONSUMER = (ConsumerNotFoundError, "it was removed, or never registered on this stream")

# The error class and the advice by code, without the "Exception" that not every service appends; by
# service or operation and code where a code has another meaning.
_BY_CODE: dict[str, tuple[type[ServiceError], str]] = {
    "ProvisionedThroughputExceeded": (
        ThroughputExceededError,
        "all polling consumers share the shard's read quota",
    ),
    "KMSThrottling": (ThroughputExceededError, "KMS refuses calls for now"),
    "LimitExceeded": (LimitExceededError, "a limit of the account was reached"),
    "ResourceNotFound": (
        StreamNotFoundError,
        "check the stream's name, the region and the account; a shard beyond the retention is gone",
    ),
    "ResourceInUse": (ResourceInUseError, "it is being changed: wait"),
    "ExpiredIterator": (IteratorExpiredError, ""),
    "ExpiredNextToken": (InternalServiceError, "the listing took too long: list again"),
    "InvalidArgument": (InvalidArgumentError, ""),
    "Validation": (InvalidArgumentError, ""),
    "Serialization": (InvalidArgumentError, ""),
    "AccessDenied": (AccessDeniedError, ""),
    "KMSAccessDenied": (EncryptionKeyError, "allow kms:Decrypt on the stream's key"),
    "KMSDisabled": (EncryptionKeyError, "enable the stream's KMS key"),
    "KMSInvalidState": (EncryptionKeyError, "check the state of the stream's KMS key"),
    "KMSNotFound": (EncryptionKeyError, "the stream's KMS key does not exist"),
    "KMSOptInRequired": (EncryptionKeyError, "sign the account up for KMS"),
    "UnrecognizedClient": (CredentialsError, _KEY_ADVICE),
    "InvalidClientTokenId": (CredentialsError, _KEY_ADVICE),
    "InvalidSignature": (CredentialsError, _SIGNATURE_ADVICE),
    "SignatureDoesNotMatch": (CredentialsError, _SIGNATURE_ADVICE),
    "IncompleteSignature": (CredentialsError, _SIGNATURE_ADVICE),
    "InvalidIdentityToken": (CredentialsError, "check the token file of the web identity"),
    "IDPCommunicationError": (CredentialsError, "STS cannot reach the identity's provider"),
    "MissingAuthenticationToken": (CredentialsError, _NO_CREDENTIALS),
    "ExpiredToken": (CredentialsError, "get a new session token: this one has expired"),
    "dynamodb ProvisionedThroughputExceeded": (
        ThroughputExceededError,
        "the capacity of the table is used up: raise it, or choose on-demand billing",
    ),
    "dynamodb TransactionConflict": (ResourceInUseError, "others write it: wait"),
    "dynamodb ReplicatedWriteConflict": (ResourceInUseError, "another region writes it: wait"),
    "dynamodb ResourceNotFound": (
        ServiceError,
        "check the table's name, the region and the account",
    ),
    "DescribeStreamSummary ResourceNotFound": (
        StreamNotFoundError,
        "check the stream's name, the region and the account",
    ),
    "DescribeStreamConsumer ResourceNotFound": _NO_CONSUMER,
    "DeregisterStreamConsumer ResourceNotFound": _NO_CONSUMER,
    "CreateStream ResourceInUse": (ResourceInUseError, "a stream of this name exists already"),
    "PutRecords ProvisionedThroughputExceeded": (
        ThroughputExceededError,
        "all producers share the shard's write quota, 1 MB and 1,000 records a second",
    ),
    "PutRecords KMSAccessDenied": (
        EncryptionKeyError,
        "allow kms:GenerateDataKey on the stream's key",
    ),
}

_CREDENTIAL_EXCEPTIONS = (
    botocore_errors.NoCredentialsError,
    botocore_errors.PartialCredentialsError,
    botocore_errors.CredentialRetrievalError,
    botocore_errors.TokenRetrievalError,
    botocore_errors.ProfileNotFound,
    botocore_errors.SSOError,
    botocore_errors.ConfigParseError,
    botocore_errors.InvalidConfigError,
)
_CREDENTIAL_MODULES = ("botocore.credentials", "botocore.tokens", "botocore.configloader")
# Here a user's own class is called; its errors are for its author.
_OWN_CALLS = ("_call_class", "_freeze")
# What requests credentials during another call, and from which service.
_CREDENTIAL_OPERATIONS = {
    "AssumeRole": "sts",
    "AssumeRoleWithWebIdentity": "sts",
    "GetRoleCredentials": "sso",
}
# Includes the system's own errors. aiohttp lets them through while it reads a body.
_NETWORK_EXCEPTIONS = (
    botocore_errors.ConnectionError,
    botocore_errors.HTTPClientError,
    botocore_errors.IncompleteReadError,
    botocore_errors.MetadataRetrievalError,
    aiohttp.ClientError,
)


class RefusedError(Exception):
    """A refusal that the caller of :func:`mapped_errors` handles itself."""

    def __init__(self, code: str, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {answer.get('Error', {}).get('Message', '')}")
        self.code = code
        self.answer = answer


def map_error(
    error: BaseException, *, operation: str, where: str, service: str = "kinesis"
) -> ServiceError:
    """Return this package's error for ``error``, of botocore or an HTTP client.

    Its message is about ``where``: a stream, a shard or a table. ``service`` is its name in IAM.
    """
    if isinstance(error, botocore_errors.ClientError):
        return _map_client_error(error, operation, where, service)
    code, said = type(error).__name__, _words_of(error)
    kind: type[ServiceError] = ConnectionFailedError
    problem = f"no complete answer from the service ({code}: {said})"
    if isinstance(error, botocore_errors.NoCredentialsError):
        kind, problem = CredentialsError, f"no credentials: {_NO_CREDENTIALS}"
    elif isinstance(error, _CREDENTIAL_EXCEPTIONS):
        kind, problem = CredentialsError, f"check aws.credentials.provider ({code}: {said})"
    elif isinstance(error, botocore_errors.EndpointConnectionError):
        advice = _HERE_ADVICE if _HERE.search(said) else _CONNECTION_ADVICE
        problem = f"no connection: {advice} ({said})"
    elif _UNTRUSTED.search(said):
        problem = f"the certificate is not trusted: {_CERTIFICATE_ADVICE} ({code}: {said})"
    elif isinstance(error, (ResponseParserError, UnicodeDecodeError)):
        kind, code = MalformedResponseError, "MalformedResponse"
        problem = f"the answer is not one of AWS: {_ENDPOINT_ADVICE} ({said})"
    elif isinstance(error, botocore_errors.BotoCoreError) and not _is_of_network(error):
        kind, problem = InvalidArgumentError, str(error)
    return kind(f"{operation} of {where}: {problem}", operation=operation, code=code)


def _is_of_network(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.filename is None
    return isinstance(error, _NETWORK_EXCEPTIONS)


def _words_of(error: BaseException) -> str:
    """Return the text of an error without secrets.

    An HTTP client quotes a header with the session token that it cannot send, and an answer with
    the credentials of a role that it cannot parse.
    """
    if type(error) is botocore_errors.HTTPClientError:
        return type(error.kwargs.get("error")).__name__
    return mask_urls(str(error).partition("\n")[0])


def _map_client_error(
    error: botocore_errors.ClientError, operation: str, where: str, service: str
) -> ServiceError:
    details = error.response.get("Error", {})
    metadata = error.response.get("ResponseMetadata", {})
    status, code = int(metadata.get("HTTPStatusCode") or 0), str(details.get("Code", ""))
    # For an answer that is not from AWS, such as a proxy's page, botocore uses the status as code.
    fallback = MalformedResponseError if code.isdecimal() else ServiceError
    if status == 429:
        fallback = ThroughputExceededError
    elif status >= 500 or status == 408:
        fallback = InternalServiceError
    if error.operation_name in _CREDENTIAL_OPERATIONS:
        role = _found_in_frames(error, "_role_arn") or "the credentials"
        where, operation = f"{role}, for {operation} of {where}", error.operation_name
        service = _CREDENTIAL_OPERATIONS[operation]
    return service_error(
        code,
        details.get("Message", ""),
        operation=operation,
        where=where,
        request_id=metadata.get("RequestId"),
        fallback=fallback,
        service=service,
    )


def service_error(
    code: str,
    message: str,
    *,
    operation: str,
    where: str,
    request_id: str | None = None,
    fallback: type[ServiceError] = ServiceError,
    service: str = "kinesis",
) -> ServiceError:
    """Return the error for a refusal by the service, with ``fallback`` for an unknown code."""
    unknown = fallback, _ENDPOINT_ADVICE if fallback is MalformedResponseError else ""
    if _RATE.search(code):
        unknown = ThroughputExceededError, "the call rate of the account is used up"
    elif _NOT_NOW.match(code):
        unknown = InternalServiceError, ""
    elif service == "cloudwatch" and _NOT_VALID.match(code):
        unknown = InvalidArgumentError, ""
    name = code.removesuffix("Exception")
    meanings = map(_BY_CODE.get, (f"{operation} {name}", f"{service} {name}", name))
    kind, advice = next(filter(None, meanings), unknown)
    is_skewed = is_refused_for_time(code, message)
    if is_skewed:
        kind, advice = CredentialsError, "check this machine's clock"
    elif kind is AccessDeniedError:
        trust = " and in the trust policy of the role" if service == "sts" else ""
        advice = f"allow {service}:{operation} in the IAM policy{trust}"
    elif "currentTimestampInMillis" in message:
        advice = "the time to begin at is in the future: give one that has passed, or LATEST"
    said = ": ".join(filter(None, (code, message))) or "the call was refused"
    problem = f"{advice} ({said})" if advice else said
    text = f"{operation} of {where}: {problem}"
    error = kind(text, operation=operation, code=code, request_id=request_id)
    # The signer has learned the time from it.
    if is_skewed or code == "IDPCommunicationError" or _KEY_NOT_RETRIEVED in message:
        error.retryable = True
    return error


def is_refused_for_time(code: str, message: str) -> bool:
    """Return whether AWS refuses a signature because its date is wrong."""
    return code in _CODES_OF_SKEW or message.startswith(_TEXTS_OF_SKEW)


@contextmanager
def mapped_errors(
    operation: str,
    where: str,
    *,
    service: str = "kinesis",
    client: Any = None,
    unless: Collection[str] = (),
) -> Iterator[None]:
    """Map the errors of a call by ``client`` to this package's; other errors pass unchanged.

    For the codes in ``unless``, ``RefusedError`` is raised instead.
    """
    try:
        yield
    except KinesisPublishersError:
        raise
    except Exception as error:  # Raised again, unless it is about the call.
        known = _about_call(error)
        if known is None:
            raise
        ours = map_error(known, operation=operation, where=where, service=service)
        if ours.code in unless and isinstance(known, botocore_errors.ClientError):
            raise RefusedError(ours.code, known.response) from error
        if ours.code in _PASSING_CREDENTIAL_CODES:
            credentials = client and client._request_signer._credentials
            # All others are renewed by their provider.
            static = type(None), Credentials, AioCredentials
            ours.retryable = type(credentials) not in static
        # Tracebacks show a cause.
        raise ours from (error if _words_of(error) == str(error) else None)


def _about_call(error: Exception) -> Exception | None:
    """Return an error of a call as botocore should have raised it; ``None`` for other errors.

    The traceback decides, because a user's credential provider may raise the same types.
    """
    plain = (botocore_errors.ClientError, *_CREDENTIAL_EXCEPTIONS)
    if isinstance(error, plain) or _is_of_network(error):
        return error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__")).removeprefix("aio") for frame in frames]
    # The parsers turn null into a value that breaks their caller.
    is_parsing = "botocore.parsers" in modules or modules[-1] == "botocore.endpoint"
    if is_parsing and isinstance(error, UNREADABLE):
        return ResponseParserError(repr(error))
    is_own = any(frame.f_code.co_name in _OWN_CALLS for frame in frames)
    if not (is_own or is_parsing) and not set(_CREDENTIAL_MODULES).isdisjoint(modules):
        if type(error) is RuntimeError:
            # Refreshed credentials that have expired already.
            return botocore_errors.CredentialRetrievalError(provider="refresh", error_msg=error)
        source = _found_in_frames(error, "METHOD", "method") or "the configuration of AWS"
        problem = f"{source}: {type(error).__name__}: {_words_of(error)}"
        return botocore_errors.InvalidConfigError(error_msg=problem)
    others = (botocore_errors.BotoCoreError, ResponseParserError, UnicodeDecodeError)
    return error if isinstance(error, others) else None


def _found_in_frames(error: BaseException, *names: str) -> str | None:
    """Return a text of the innermost object that has one, of those at work when it failed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    objects = [frame.f_locals.get("self") for frame in reversed(frames)]
    found = (getattr(one, name, None) for one in objects for name in names)
    return next((text for text in found if text and isinstance(text, str)), None)


@contextmanager
def complete_answer(operation: str, where: str) -> Iterator[None]:
    """Report, as ``MalformedResponseError``, a member that is missing or has another type.

    Wrap only code that reads the members of an answer.
    """
    try:
        yield
    except UNREADABLE as error:
        raise MalformedResponseError(
            f"{operation} of {where}: the answer is not one of AWS, or was cut off: "
            f"{_ENDPOINT_ADVICE} ({error!r}). Nothing of it was used.",
            operation=operation,
            code="MalformedResponse",
        ) from error


def text_in(answer: Mapping[str, Any], name: str) -> str:
    """Return the text ``name`` of an answer; a ``LookupError`` or ``TypeError`` if it has none."""
    text = answer[name]
    if not (isinstance(text, str) and text):
        raise TypeError(f"{name} is {text!r:.100}")
    return text
