"""A field of a section: its declaration on the class, its value on an instance."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from kinesis_publishers.config import (
    AwsConfig,
    DiscoveryConfig,
    Duration,
    Option,
    PollingConfig,
    Properties,
    StreamsConfig,
    WholeNumber,
)
from kinesis_publishers.config.catalogue import all_declarations, all_sections
from kinesis_publishers.config.option import Derived, Lookup, Section
from kinesis_publishers.errors import ConfigErrors


class _Example(Section, section="Example"):
    """A section with one field of each kind."""

    count: Option[int] = Option(key="a.count", parser=WholeNumber(), default=3, doc="A count.")
    pause_seconds: Option[float] = Option(
        key="a.pause", parser=Duration(), default=1500.0, doc="A pause."
    )
    password: Option[int | None] = Option(
        key="a.password", parser=WholeNumber(), default=None, secret=True, doc="A secret."
    )
    hidden: ClassVar[Option[int]] = Option(
        key="a.hidden", parser=WholeNumber(), default=4, doc="A part of the sum."
    )
    total: Derived[int] = Derived(
        lambda lookup: lookup.get(_Example.count) + lookup.get(_Example.hidden)
    )


def test_the_class_has_the_declarations_and_an_instance_has_the_values() -> None:
    assert _Example.count.full_key == "kinesis.a.count"
    assert [one.key for one in _Example.options()] == [
        "a.count",
        "a.pause",
        "a.password",
        "a.hidden",
    ]
    example = _Example()
    assert (example.count, example.pause_seconds, example.total) == (3, 1.5, 7)


def test_an_option_is_in_the_section_of_its_class_unless_it_names_another() -> None:
    sections = {one.key: one.section for one in all_declarations()}
    assert sections[DiscoveryConfig.interval_seconds.key] == "Discovery"
    assert sections[DiscoveryConfig.shard_order.key] == "Source"


def test_the_secrets_of_a_section_are_masked() -> None:
    assert "password=***" in repr(_Example(password=12345))
    assert "password=None" in repr(_Example())


def test_a_section_travels_to_other_processes() -> None:
    example = _Example(count=9)
    assert pickle.loads(pickle.dumps(example)) == example


@pytest.mark.parametrize(
    "section",
    [one for one in all_sections() if one is not StreamsConfig],
    ids=lambda one: one.__name__,
)
def test_a_section_that_is_given_nothing_is_that_of_empty_properties(
    section: type[Section],
) -> None:
    assert section() == section.from_properties(Properties.parse({}, complete=False))
    assert section() == section.from_properties(Lookup())


_GIVEN = {"Kinesis.Streams": "orders", "flink.shard.getrecords.maxrecordcount": "7"}


def test_other_values_leave_the_rest_as_it_was_written() -> None:
    properties = Properties.parse(_GIVEN)
    changed = properties.with_values({AwsConfig.region: "eu-west-1"})
    assert changed == Properties.parse({**_GIVEN, "aws.region": "eu-west-1"})
    assert changed.written_key(PollingConfig.max_records) == "flink.shard.getrecords.maxrecordcount"
    assert changed.with_values({PollingConfig.max_records: 8}).get(PollingConfig.max_records) == 8
    assert not properties.is_given(AwsConfig.region)


def test_other_values_are_checked_like_all_others() -> None:
    properties = Properties.parse(_GIVEN)
    with pytest.raises(ConfigErrors, match=r"flink\.shard\.getrecords\.maxrecordcount: got 0"):
        properties.with_values({PollingConfig.max_records: 0})
