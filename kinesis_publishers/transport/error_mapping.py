"""Maps what botocore and the network raise to our error tree: the one table of AWS error codes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import botocore.exceptions as botocore_errors

from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    CredentialsError,
    EncryptionKeyError,
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    LimitExceededError,
    MalformedResponseError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BOTOCORE_EXCEPTIONS", "complete_answer", "map_error"]

#: What a call can raise because of AWS or the network. aiohttp's and the system's own errors come
#: through while a body is read: botocore wraps only those of sending.
BOTOCORE_EXCEPTIONS: tuple[type[Exception], ...] = (
    botocore_errors.ClientError,
    botocore_errors.BotoCoreError,
    aiohttp.ClientError,
    OSError,
)

_CREDENTIAL_ADVICE = "Check the credentials (aws.credentials.provider...) and the machine's clock."

# code -> (error class, what to do about it)
_BY_CODE: dict[str, tuple[type[ServiceError], str]] = {
    "ProvisionedThroughputExceededException": (
        ThroughputExceededError,
        "The shard's read quota is shared by all polling consumers.",
    ),
    "ThrottlingException": (ThroughputExceededError, "The call rate of the account is used up."),
    "Throttling": (ThroughputExceededError, "The call rate of the account is used up."),
    "RequestLimitExceeded": (ThroughputExceededError, "The call rate of the account is used up."),
    "KMSThrottlingException": (ThroughputExceededError, "KMS refuses calls for now."),
    "LimitExceededException": (LimitExceededError, "A limit of the account was reached."),
    "ResourceNotFoundException": (
        StreamNotFoundError,
        "Check the stream's name, region and account; a shard beyond the retention is gone too.",
    ),
    "ResourceInUseException": (ResourceInUseError, "The resource is being changed; wait."),
    "ExpiredIteratorException": (IteratorExpiredError, ""),
    "ExpiredNextTokenException": (InternalServiceError, "The listing took too long; list again."),
    "InvalidArgumentException": (InvalidArgumentError, ""),
    "ValidationException": (InvalidArgumentError, ""),
    "SerializationException": (InvalidArgumentError, ""),
    "AccessDeniedException": (AccessDeniedError, "Allow the action in the IAM policy."),
    "AccessDenied": (AccessDeniedError, "Allow the action in the IAM policy."),
    "KMSAccessDeniedException": (EncryptionKeyError, "Allow kms:Decrypt on the stream's key."),
    "KMSDisabledException": (EncryptionKeyError, "Enable the stream's KMS key."),
    "KMSInvalidStateException": (EncryptionKeyError, "Check the state of the stream's KMS key."),
    "KMSNotFoundException": (EncryptionKeyError, "The stream's KMS key does not exist."),
    "KMSOptInRequired": (EncryptionKeyError, "The account must be signed up for KMS."),
    "UnrecognizedClientException": (CredentialsError, _CREDENTIAL_ADVICE),
    "InvalidClientTokenId": (CredentialsError, _CREDENTIAL_ADVICE),
    "InvalidSignatureException": (CredentialsError, _CREDENTIAL_ADVICE),
    "SignatureDoesNotMatch": (CredentialsError, _CREDENTIAL_ADVICE),
    "IncompleteSignature": (CredentialsError, _CREDENTIAL_ADVICE),
    "MissingAuthenticationTokenException": (CredentialsError, _CREDENTIAL_ADVICE),
    "ExpiredTokenException": (CredentialsError, "The session token has expired; get a new one."),
    "ExpiredToken": (CredentialsError, "The session token has expired; get a new one."),
    "InternalFailureException": (InternalServiceError, ""),
    "InternalFailure": (InternalServiceError, ""),
    "InternalServerError": (InternalServiceError, ""),
    "ServiceUnavailable": (InternalServiceError, ""),
    "ServiceUnavailableException": (InternalServiceError, ""),
}

_CREDENTIAL_EXCEPTIONS = (
    botocore_errors.NoCredentialsError,
    botocore_errors.PartialCredentialsError,
    botocore_errors.CredentialRetrievalError,
    botocore_errors.TokenRetrievalError,
    botocore_errors.ProfileNotFound,
    botocore_errors.SSOError,
)

_CALL_EXCEPTIONS = (
    botocore_errors.ParamValidationError,
    botocore_errors.ValidationError,
    botocore_errors.NoRegionError,
)


def map_error(error: BaseException, *, operation: str, where: str) -> ServiceError:
    """Return the error of our tree for ``error``; raise it ``from`` the original.

    Args:
        error: one of :data:`BOTOCORE_EXCEPTIONS`.
        operation: the API operation, as ``GetRecords``.
        where: what was asked, for the message: a stream or a shard.
    """
    if isinstance(error, botocore_errors.ClientError):
        return _map_client_error(error, operation, where)
    code = type(error).__name__
    if isinstance(error, _CREDENTIAL_EXCEPTIONS):
        return CredentialsError(
            f"{operation} of {where}: {error}. {_CREDENTIAL_ADVICE}", operation=operation, code=code
        )
    if isinstance(error, _CALL_EXCEPTIONS):
        return InvalidArgumentError(
            f"{operation} of {where}: {error}", operation=operation, code=code
        )
    # Whatever else botocore raises is about sending and receiving: connect, read, TLS, DNS.
    return ConnectionFailedError(
        f"{operation} of {where}: no complete answer from the service ({code}: {error}).",
        operation=operation,
        code=code,
    )


def _map_client_error(
    error: botocore_errors.ClientError, operation: str, where: str
) -> ServiceError:
    details = error.response.get("Error", {})
    metadata = error.response.get("ResponseMetadata", {})
    code = str(details.get("Code", ""))
    kind, advice = _BY_CODE.get(code, (None, ""))
    if kind is None:
        status = int(metadata.get("HTTPStatusCode") or 0)
        kind = InternalServiceError if status >= 500 else ServiceError
    if kind is AccessDeniedError:
        advice = f"Allow kinesis:{operation} in the IAM policy."
    message = f"{operation} of {where}: {code}: {details.get('Message', '')}".rstrip(": .")
    return kind(
        f"{message}. {advice}".rstrip(),
        operation=operation,
        code=code,
        request_id=metadata.get("RequestId"),
    )


@contextmanager
def complete_answer(operation: str, where: str) -> Iterator[None]:
    """Report an answer without its members as malformed; put it around taking them out only.

    A body that is cut off comes back from botocore as an answer without its members.

    Raises:
        MalformedResponseError: a member is missing.
    """
    try:
        yield
    except KeyError as error:
        raise MalformedResponseError(
            f"{operation} of {where}: the answer has no {error}; it was cut off.",
            operation=operation,
            code="MalformedResponse",
        ) from error
