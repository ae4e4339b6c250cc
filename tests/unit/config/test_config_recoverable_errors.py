"""The errors that a user calls recoverable."""

from __future__ import annotations

import ssl
from itertools import pairwise

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.config import FanOutConfig
from kinesis_publishers.config.retries import RecoverableErrors, causes
from kinesis_publishers.errors import AccessDeniedError, InvalidOptionError, ServiceError


def chain(*errors: BaseException) -> BaseException:
    """Return the first error, each raised from the one behind it."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def test_every_one_that_is_named_in_the_properties_counts():
    prefix = "flink.shard.consumer.error.recoverable"
    properties = Properties.parse(
        {
            f"{prefix}[0].exception": "ssl.SSLError",
            f"{prefix}[1].exception": "SomeNewException",
            f"{prefix}[2].exception": "TimeoutError",
        },
        complete=False,
    )
    recoverable = FanOutConfig.from_properties(properties).recoverable_errors
    assert recoverable == RecoverableErrors(
        codes=frozenset({"SomeNewException"}), types=(ssl.SSLError, TimeoutError)
    )


@pytest.mark.parametrize(
    "name", ["java.net.UnknownHostException", "ssl.NoSuchError", "ssl.SSLContext", "os.path"]
)
def test_a_dotted_name_that_is_no_exception_here_is_refused(name: str):
    with pytest.raises(InvalidOptionError, match=f"{name!r} among the recoverable errors"):
        RecoverableErrors.parse([name])


def test_an_error_is_found_anywhere_in_the_cause_chain():
    recoverable = RecoverableErrors.parse(["ssl.SSLError", "Code"])
    assert recoverable.contain(ssl.SSLError())
    assert recoverable.contain(chain(RuntimeError(), ValueError(), ssl.SSLZeroReturnError()))
    assert recoverable.contain(chain(RuntimeError(), ServiceError("x", code="Code")))
    assert not recoverable.contain(chain(RuntimeError(), AccessDeniedError("x", code="Other")))


def test_what_merely_happened_while_another_error_was_handled_is_no_cause():
    error = RuntimeError()
    error.__context__ = ssl.SSLError()
    assert not RecoverableErrors.parse(["ssl.SSLError"]).contain(error)


def test_a_chain_that_bites_its_tail_comes_to_an_end():
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert list(causes(first)) == [first, second]
