"""What botocore and the network raise, as errors of our own tree."""

from __future__ import annotations

import re
import traceback
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
import botocore.exceptions as botocore_errors
import pytest
from aiobotocore.credentials import AioCredentials
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.parsers import ResponseParserError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from kinesis_publishers.aws.errors import map_error, mapped_errors
from kinesis_publishers.aws.writing import answer_in
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
    RetriesExhaustedError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.retry import RetryBudget, RetryPolicy
from kinesis_publishers.testing.manual_clock import ManualClock

EXPECTED: dict[str, tuple[type[ServiceError], bool]] = {
    "ProvisionedThroughputExceededException": (ThroughputExceededError, True),
    "KMSThrottlingException": (ThroughputExceededError, True),
    "LimitExceededException": (LimitExceededError, True),
    "ResourceNotFoundException": (StreamNotFoundError, False),
    "ResourceInUseException": (ResourceInUseError, True),
    "ExpiredIteratorException": (IteratorExpiredError, False),
    "ExpiredNextTokenException": (InternalServiceError, True),
    "InvalidArgumentException": (InvalidArgumentError, False),
    "ValidationException": (InvalidArgumentError, False),
    "SerializationException": (InvalidArgumentError, False),
    "AccessDeniedException": (AccessDeniedError, False),
    "AccessDenied": (AccessDeniedError, False),
    "KMSAccessDeniedException": (EncryptionKeyError, False),
    "KMSDisabledException": (EncryptionKeyError, False),
    "KMSInvalidStateException": (EncryptionKeyError, False),
    "KMSNotFoundException": (EncryptionKeyError, False),
    "KMSOptInRequired": (EncryptionKeyError, False),
    "UnrecognizedClientException": (CredentialsError, False),
    "InvalidClientTokenId": (CredentialsError, False),
    "InvalidSignatureException": (CredentialsError, False),
    "SignatureDoesNotMatch": (CredentialsError, False),
    "IncompleteSignature": (CredentialsError, False),
    "MissingAuthenticationTokenException": (CredentialsError, False),
    "ExpiredTokenException": (CredentialsError, False),
    "ExpiredToken": (CredentialsError, False),
    "InternalFailureException": (InternalServiceError, True),
    "InternalFailure": (InternalServiceError, True),
    "InternalServerError": (InternalServiceError, True),
    "ServiceUnavailable": (InternalServiceError, True),
    "ServiceUnavailableException": (InternalServiceError, True),
}

# Codes after which a user has to do something: the message must say what.
NEEDS_ADVICE = {
    "ResourceNotFoundException": "the stream's name, the region and the account",
    "AccessDeniedException": "kinesis:GetRecords",
    "AccessDenied": "kinesis:GetRecords",
    "KMSAccessDeniedException": "kms:Decrypt",
    "KMSDisabledException": "enable the stream's KMS key",
    "ExpiredTokenException": "get a new session token",
    "UnrecognizedClientException": "check the access key",
}


def client_error(
    code: str, *, status: int = 400, message: str = "Refused"
) -> botocore_errors.ClientError:
    return botocore_errors.ClientError(
        {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"RequestId": "id-1", "HTTPStatusCode": status},
        },
        "GetRecords",
    )


def mapped(error: BaseException) -> ServiceError:
    return map_error(error, operation="GetRecords", where="orders/shardId-0")


@pytest.mark.parametrize("code", EXPECTED)
def test_a_code_has_its_class_and_is_named_with_operation_place_and_request(code: str):
    error = mapped(client_error(code))
    assert (type(error), error.retryable) == EXPECTED[code]
    assert re.fullmatch(
        rf"GetRecords of orders/shardId-0: (.*\({code}: Refused\)|{code}: Refused)", str(error)
    )
    assert (error.operation, error.code, error.request_id) == ("GetRecords", code, "id-1")


@pytest.mark.parametrize("code", NEEDS_ADVICE)
def test_an_error_that_the_user_must_mend_says_how(code: str):
    assert NEEDS_ADVICE[code] in str(mapped(client_error(code)))


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("ProvisionedThroughputExceededException", "all producers share the shard's write quota"),
        ("KMSAccessDeniedException", "allow kms:GenerateDataKey"),
    ],
)
def test_a_producer_is_told_what_a_producer_needs(code: str, advice: str):
    error = map_error(client_error(code), operation="PutRecords", where="orders")
    assert type(error) is EXPECTED[code][0]
    assert f"orders: {advice}" in str(error)


@pytest.mark.parametrize(
    "code",
    [
        *vars(ThrottledRetryableChecker)["_THROTTLED_ERROR_CODES"],
        *vars(TransientRetryableChecker)["_TRANSIENT_ERROR_CODES"],
    ],
)
def test_what_botocore_repeats_is_repeated_of_a_call_and_of_a_record_that_is_put(code: str):
    entries = [{"ErrorCode": code}, {"ShardId": "shardId-0", "SequenceNumber": "1"}]
    put = answer_in({"FailedRecordCount": 1, "Records": entries}, 2, "orders")
    assert mapped(client_error(code)).retryable
    assert put.errors[0].retryable


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestExpired", "Request has expired."),
        ("RequestTimeTooSkewed", ""),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier than 2"),
        ("SignatureDoesNotMatch", "Signature not yet current: 2 is still later than 1"),
        ("IDPCommunicationError", ""),
        ("InvalidIdentityToken", "Couldn't retrieve verification key from your identity provider"),
    ],
)
def test_what_is_no_fault_of_the_credentials_is_repeated(code: str, message: str):
    error = mapped(client_error(code, message=message))
    assert isinstance(error, CredentialsError)
    assert error.retryable
    if "Signature" in message or "Request" in code:
        assert "orders/shardId-0: check this machine's clock (" in str(error)
    assert not mapped(client_error("InvalidIdentityToken", message="Wrong audience")).retryable


def test_an_answer_that_cannot_be_parsed_is_not_shown():
    failed = ResponseParserError("invalid XML received:\n<SecretAccessKey>secret</SecretAcc")
    error = raised_by(failed)
    assert "invalid XML received" in str(error)
    assert "secret" not in "".join(traceback.format_exception(error))


def test_an_untrusted_certificate_is_a_matter_of_the_ca_bundle():
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    failed = botocore_errors.SSLError(endpoint_url="https://me:secret@host", error=text)
    error = mapped(failed)
    assert isinstance(error, ConnectionFailedError)
    assert "set aws.cabundle" in str(error)
    assert "secret" not in str(error)
    policy = RetryPolicy(max_retries=0, base_seconds=0, max_seconds=0, exponent=1)
    with pytest.raises(RetriesExhaustedError, match="Waiting longer does not help"):
        RetryBudget(policy, ManualClock(), is_start=True).delay_after(error)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        *((status, "New", ServiceError) for status in (400, 404, 413)),
        *((status, "New", InternalServiceError) for status in (408, 500, 502, 503)),
        (429, "New", ThroughputExceededError),
        (429, "429", ThroughputExceededError),
        (404, "404", MalformedResponseError),  # of what is not AWS
    ],
)
def test_an_unknown_code_is_judged_by_its_status(status: int, code: str, kind: type[ServiceError]):
    error = mapped(client_error(code, status=status))
    assert (type(error), error.retryable) == (kind, kind is not ServiceError)


def test_a_known_code_counts_more_than_the_status():
    assert isinstance(mapped(client_error("AccessDenied", status=500)), AccessDeniedError)


def test_an_answer_without_any_detail_is_still_an_error():
    error = mapped(botocore_errors.ClientError({}, "GetRecords"))
    assert type(error) is ServiceError
    assert (error.code, error.request_id) == ("", None)
    assert str(error).startswith("GetRecords of orders/shardId-0")


def test_the_message_of_the_service_is_not_changed():
    error = mapped(client_error("AccessDenied", message="Not allowed... to read a..b."))
    assert str(error).endswith("(AccessDenied: Not allowed... to read a..b.)")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            botocore_errors.EndpointConnectionError(endpoint_url="http://127.0.0.1:4567/"),
            "nothing listens: check the port (aws.endpoint), or start `kinesis-publishers local`",
        ),
        (
            client_error(
                "InvalidArgumentException",
                message="The timestampInMillis parameter cannot be greater than the "
                "currentTimestampInMillis. timestampInMillis: 2, currentTimestampInMillis: 1",
            ),
            "the time to begin at is in the future: give one that has passed, or LATEST (Invalid",
        ),
    ],
    ids=["no server on this machine", "a start in the future"],
)
def test_what_a_beginner_meets_has_its_advice(error: Exception, advice: str):
    assert advice in str(mapped(error))


@pytest.mark.parametrize(
    "error",
    [
        botocore_errors.EndpointConnectionError(endpoint_url="https://kinesis"),
        botocore_errors.ConnectTimeoutError(endpoint_url="https://kinesis"),
        botocore_errors.ReadTimeoutError(endpoint_url="https://kinesis"),
        botocore_errors.ConnectionClosedError(endpoint_url="https://kinesis"),
        botocore_errors.SSLError(endpoint_url="https://kinesis", error="certificate"),
        botocore_errors.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        botocore_errors.HTTPClientError(error="broken"),
        aiohttp.ClientPayloadError("cut off"),
        aiohttp.ServerDisconnectedError(),
        ConnectionResetError(104, "reset"),
        TimeoutError("read"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_connection_is_repeated(error: Exception):
    ours = mapped(error)
    assert isinstance(ours, ConnectionFailedError)
    assert ours.retryable
    assert ours.code == type(error).__name__
    assert "orders/shardId-0" in str(ours)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        *(
            (error, CredentialsError, "aws.credentials.provider")
            for error in (
                botocore_errors.NoCredentialsError(),
                botocore_errors.PartialCredentialsError(provider="env", cred_var="secret"),
                botocore_errors.CredentialRetrievalError(provider="sts", error_msg="no"),
                botocore_errors.TokenRetrievalError(provider="sso", error_msg="no"),
                botocore_errors.ProfileNotFound(profile="work"),
                botocore_errors.UnauthorizedSSOTokenError(),
                botocore_errors.SSOTokenLoadError(error_msg="no"),
            )
        ),
        (botocore_errors.NoRegionError(), InvalidArgumentError, "region"),
        (botocore_errors.ParamValidationError(report="Limit"), InvalidArgumentError, "Limit"),
        (botocore_errors.InvalidRegionError(region_name="x y"), InvalidArgumentError, "x y"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_call_that_cannot_be_made_is_not_repeated(
    error: Exception, kind: type[ServiceError], text: str
):
    ours = mapped(error)
    assert isinstance(ours, kind)
    assert not ours.retryable
    assert text in str(ours)


def expired_credentials(*_: object) -> dict[str, str]:
    """Return what a provider fetches whose credentials have expired when they come."""
    return {
        "access_key": "key",
        "secret_key": "secret",
        "token": "token",
        "expiry_time": "2020-01-01T00:00:00Z",
    }


RENEWED = RefreshableCredentials(
    "key", "secret", "token", datetime.now(UTC) + timedelta(hours=1), expired_credentials, "role"
)


def raised_by(error: Exception | None, client: Any = None, *, call: Any = None) -> Exception:
    """Return what becomes of an error, or of what a call raises."""
    try:
        with mapped_errors("GetRecords", "orders", client=client):
            if error is not None:
                raise error
            call()
    except (ServiceError, ValueError, RuntimeError, KeyError) as raised:
        return raised
    raise AssertionError("nothing was raised")


def client_with(credentials: object) -> Any:
    """Return as much of a client of botocore as knows its credentials."""
    return SimpleNamespace(_request_signer=SimpleNamespace(_credentials=credentials))


@pytest.mark.parametrize("code", ["ExpiredTokenException", "ExpiredToken"])
def test_a_token_that_has_expired_is_waited_for_where_something_renews_it(code: str):
    error = raised_by(client_error(code), client_with(RENEWED))
    assert isinstance(error, CredentialsError)
    assert error.retryable


@pytest.mark.parametrize("kind", [Credentials, AioCredentials])
def test_a_token_that_nothing_renews_fails_at_once(kind: type):
    credentials = kind("key", "secret", "token")
    error = raised_by(client_error("ExpiredTokenException"), client_with(credentials))
    assert isinstance(error, CredentialsError)
    assert not error.retryable
    assert "get a new session token" in str(error)


def test_credentials_that_could_not_be_fetched_for_now_are_waited_for():
    failure = botocore_errors.CredentialRetrievalError(provider="sts", error_msg="timed out")
    error = raised_by(failure, client_with(RENEWED))
    assert isinstance(error, CredentialsError)
    assert error.__cause__ is failure
    assert error.retryable


def test_credentials_that_come_expired_are_waited_for():
    old = datetime.now(UTC) - timedelta(hours=1)
    credentials = RefreshableCredentials("k", "s", "t", old, expired_credentials, "role")
    error = raised_by(None, client_with(credentials), call=credentials.get_frozen_credentials)
    assert isinstance(error, CredentialsError)
    assert error.retryable
    assert "still expired" in str(error)


@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("mine"), KeyError("VAULT")])
def test_what_is_not_about_the_call_is_left_alone(error: Exception):
    assert raised_by(error) is error
