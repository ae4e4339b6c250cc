"""The duties of every partitioner, as tests for ours and for those of others."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from attrs import field, frozen

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import InvalidRecordError
from kinesis_publishers.producing.checking import checked_row
from kinesis_publishers.testing.contracts.subjects import missing_fixture


@frozen(kw_only=True)
class PartitionerSubject:
    """A partitioner under test.

    Attributes:
        payloads: records that it chooses keys for; by default of any kind and size.
        properties: those that it is made of.
    """

    partitioner: Partitioner
    payloads: Sequence[bytes] = field(default=(b"", b"text", bytes(range(256)), bytes(1024 * 1024)))
    properties: Properties = field(factory=lambda: Properties.parse({}, complete=False))


class PartitionerContract:
    """The duties of every partitioner. Override the fixture ``subject``."""

    subject = missing_fixture("PartitionerSubject")

    def test_its_keys_are_a_pair(self, subject: PartitionerSubject) -> None:
        for payload in subject.payloads:
            keys: object = subject.partitioner.keys_of(payload)
            assert isinstance(keys, tuple), (
                f"keys_of() returned {keys!r}: return a tuple of partition key and explicit hash "
                "key; it must not be async"
            )
            assert len(keys) == 2, f"keys_of() returned {keys!r}, not a pair"

    def test_kinesis_accepts_its_keys(self, subject: PartitionerSubject) -> None:
        # One instance serves a producer for all its life.
        for payload in [*subject.payloads] * 100:
            try:
                checked_row((payload, None), subject.partitioner)
            except InvalidRecordError as error:
                pytest.fail(f"for {payload[:50]!r}: {error}")

    def test_it_is_made_of_properties(self, subject: PartitionerSubject) -> None:
        # In Spark they were pickled on their way to a worker.
        properties = pickle.loads(pickle.dumps(subject.properties))
        made = type(subject.partitioner).from_properties(properties)
        assert isinstance(made, type(subject.partitioner)), (
            f"from_properties() returned {made!r}: return an instance of the class"
        )
