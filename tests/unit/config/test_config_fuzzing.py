"""Whatever a configuration holds, it is read or refused with errors of our own, never a crash."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import javaproperties
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import Properties, config
from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers.errors import ConfigError, ConfigErrors
from kinesis_publishers_spark.aliases import ALIASES, parse_options
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_CONSUMER_ARN = f"{_ARN}/consumer/reports:1700000000"
_TYPED = [
    one for one in vars(config).values() if attrs.has(one) and hasattr(one, "from_properties")
]


def damaged(text: str) -> st.SearchStrategy[str]:
    """Return texts that are ``text`` with a part of it replaced."""
    cuts = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)), st.text(max_size=5))
    return cuts.map(lambda cut: text[: min(cut[:2])] + cut[2] + text[max(cut[:2]) :])


# Names in place of <stream> and <key>.
_KEYS = st.sampled_from(
    sorted({re.sub("<[a-z]+>", "orders", one.full_key) for one in all_declarations()})
)
_VALUES = st.one_of(
    st.text(max_size=20),
    st.integers() | st.integers(-1, 100),
    st.floats(),
    st.booleans(),
    damaged(_ARN),
    damaged(f"{_ARN},orders,{_CONSUMER_ARN}"),
    damaged(_CONSUMER_ARN),
    damaged("2026-05-31T00:00:00.000Z"),
    damaged("yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
    damaged('{"shardId-000000000000": {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1"}}'),
    damaged("https://user:secret@localhost:4567/path"),
    damaged("500ms"),
    damaged("64MiB"),
    st.sampled_from(["LATEST", "AT_TIMESTAMP", "EFO", "NONE", "module:Class", "true", "sqlite"]),
)
_PAIRS = st.dictionaries(_KEYS | _KEYS.map(str.lower) | st.text(max_size=30), _VALUES, max_size=8)


def parsed_or_refused(parse: Callable[[], Properties], *, about: str = "") -> Properties | None:
    """Return what ``parse`` makes, ``None`` if it says what is wrong, and with which key."""
    try:
        return parse()
    except ConfigErrors as error:
        refused = error
    assert refused.problems
    assert about in str(refused)
    return None


def read_everything(properties: Properties) -> None:
    """Read all typed views; what they refuse they refuse as a configuration."""
    for typed in _TYPED:
        with suppress(ConfigError):
            typed.from_properties(properties)


@given(_PAIRS)
@settings(max_examples=examples(150))
def test_a_dict_is_read_or_refused(pairs: dict[str, Any]) -> None:
    properties = parsed_or_refused(lambda: Properties.parse({"kinesis.streams": "a", **pairs}))
    if properties is not None:
        read_everything(properties)
        assert Properties.parse(properties.to_dict()) == properties


@given(st.binary(max_size=100) | st.text(max_size=100))
def test_a_text_is_read_or_refused(content: bytes | str) -> None:
    parsed_or_refused(lambda: Properties.from_text(content, name="my", complete=False))


@given(_PAIRS)
def test_a_text_means_the_same_as_its_dict(pairs: dict[str, Any]) -> None:
    """Written by a library that escapes what has to be escaped."""
    texts = {key: str(value) for key, value in pairs.items()}
    expected = parsed_or_refused(lambda: Properties.parse(texts, complete=False))
    content = javaproperties.dumps(texts, timestamp=False)
    if expected is not None:
        assert Properties.from_text(content, name="my", complete=False) == expected


@given(st.dictionaries(st.sampled_from(sorted(ALIASES)) | _KEYS | st.text(max_size=20), _VALUES))
def test_spark_options_are_read_or_refused(options: dict[str, Any]) -> None:
    texts = {key.lower(): str(value) for key, value in options.items()}
    properties = parsed_or_refused(lambda: parse_options(texts))
    if properties is not None:
        read_everything(properties)


@given(damaged(_ARN) | damaged(_CONSUMER_ARN) | st.text(max_size=40))
def test_a_stream_is_a_name_or_an_arn_or_refused(text: str) -> None:
    properties = parsed_or_refused(
        lambda: Properties.parse({"kinesis.streams": text}), about="kinesis.streams"
    )
    if properties is None:
        return
    for stream in config.StreamsConfig.from_properties(properties).streams:
        assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", stream.name)
        assert stream.arn is None or stream.arn.endswith(f":stream/{stream.name}")


@given(damaged(_CONSUMER_ARN) | st.text(max_size=40))
def test_a_consumer_arn_is_one_of_its_stream_or_refused(text: str) -> None:
    pairs = {
        "kinesis.streams": "orders",
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": "NONE",
        "kinesis.stream.efo.consumerarn.orders": text,
    }
    properties = parsed_or_refused(lambda: Properties.parse(pairs), about="consumerarn")
    if properties is not None:
        (arn,) = config.RegistrationConfig.from_properties(properties).consumer_arns.values()
        assert ":stream/orders/consumer/" in arn
