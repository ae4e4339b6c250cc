"""What a configuration of enhanced fan-out may not say."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.config import Properties
from kinesis_publishers.errors import (
    ConfigError,
    ConfigErrors,
    InvalidOptionError,
    MissingOptionError,
)

_EFO = {
    "kinesis.streams": "orders",
    "kinesis.stream.recordpublisher": "EFO",
    "kinesis.stream.efo.consumername": "billing",
}
_STREAM_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_ARN_KEY = "kinesis.stream.efo.consumerarn.orders"


def _problems(**values: Any) -> tuple[ConfigError, ...]:
    return _problems_of(_EFO | values)


def _problems_of(values: dict[str, Any]) -> tuple[ConfigError, ...]:
    try:
        Properties.parse(values)
    except ConfigErrors as error:
        return error.problems
    return ()


def _arn(stream_arn: str = _STREAM_ARN, name: str = "billing") -> str:
    return f"{stream_arn}/consumer/{name}:1700000000"


def test_a_name_and_an_arn_that_agree_are_accepted() -> None:
    assert _problems(**{_ARN_KEY: _arn()}) == ()
    assert _problems(**{_ARN_KEY: _arn(), "kinesis.streams": _STREAM_ARN}) == ()


@pytest.mark.parametrize("registration", ["LAZY", "EAGER", "NONE"])
def test_an_arn_with_another_name_is_an_error(registration: str) -> None:
    (problem,) = _problems(
        **{_ARN_KEY: _arn(name="archive"), "kinesis.stream.efo.registration": registration}
    )
    assert isinstance(problem, InvalidOptionError)
    assert "the consumer 'archive'" in str(problem)
    assert "kinesis.stream.efo.consumername is 'billing'" in str(problem)


@pytest.mark.parametrize(
    "stream_arn",
    [
        "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
        "arn:aws:kinesis:eu-west-1:210987654321:stream/orders",
    ],
)
def test_an_arn_of_another_region_or_account_than_the_stream_is_an_error(stream_arn: str) -> None:
    (problem,) = _problems(**{"kinesis.streams": _STREAM_ARN, _ARN_KEY: _arn(stream_arn)})
    assert isinstance(problem, InvalidOptionError)
    assert "another stream, region or account" in str(problem)
    assert _STREAM_ARN in str(problem)
    # A stream that is given by its name alone may be anywhere.
    assert _problems(**{_ARN_KEY: _arn(stream_arn)}) == ()


def test_http_2_without_tls_is_an_error() -> None:
    plain = {"aws.endpoint": "http://localhost:4567"}
    (problem,) = _problems(**plain, **{"kinesis.stream.efo.http-version": "2"})
    assert isinstance(problem, InvalidOptionError)
    assert "needs TLS" in str(problem)
    assert _problems(**plain, **{"kinesis.stream.efo.http-version": "auto"}) == ()
    secure = {"aws.endpoint": "https://localhost:4567"}
    assert _problems(**secure, **{"kinesis.stream.efo.http-version": "2"}) == ()


def test_every_problem_is_in_one_error() -> None:
    problems = _problems(
        **{
            "kinesis.streams": "orders,payments,returns",
            "kinesis.stream.efo.registration": "NONE",
            "kinesis.stream.efo.http-version": "2",
            "aws.endpoint": "http://localhost:4567",
            _ARN_KEY: _arn(name="archive"),
        }
    )
    assert [type(one) for one in problems] == [
        InvalidOptionError,
        InvalidOptionError,
        MissingOptionError,
    ]
    missing = str(problems[-1])
    assert "consumerarn.payments" in missing
    assert "consumerarn.returns" in missing
    assert "consumerarn.orders" not in missing


def test_nothing_of_it_matters_to_polling() -> None:
    values = _EFO | {"kinesis.stream.recordpublisher": "POLLING", _ARN_KEY: _arn(name="archive")}
    assert _problems_of(values) == ()


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "ключ"])
def test_a_bad_consumer_name_is_an_error(name: str) -> None:
    (problem,) = _problems(**{"kinesis.stream.efo.consumername": name})
    assert "1 to 128 letters" in str(problem)


@pytest.mark.parametrize("registration", ["LAZY", "EAGER"])
def test_registering_needs_a_name(registration: str) -> None:
    values = _EFO | {"kinesis.stream.efo.registration": registration}
    del values["kinesis.stream.efo.consumername"]
    (problem,) = _problems_of(values)
    assert isinstance(problem, MissingOptionError)
    assert f"required for EFO with {registration}" in str(problem)
