"""Every partitioner keeps the contract, which can fail."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers import Partitioner, Properties
from kinesis_publishers.config import Option, Text
from kinesis_publishers.producing.routing import RandomPartitioner
from kinesis_publishers.testing.contracts import PartitionerContract, PartitionerSubject

_SEPARATOR: Option[str] = Option(
    key="custom.separator",
    parser=Text(),
    default=",",
    doc="What ends the key.",
)


class ByCustomer(Partitioner):
    """A third party's, which is made of properties."""

    def __init__(self, separator: str = ",") -> None:
        self._separator = separator

    @classmethod
    def from_properties(cls, properties: Properties) -> ByCustomer:
        return cls(properties.custom(_SEPARATOR).get(_SEPARATOR))

    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        return data.decode().partition(self._separator)[0], None


class TestRandom(PartitionerContract):
    @pytest.fixture
    def subject(self) -> PartitionerSubject:
        return PartitionerSubject(partitioner=RandomPartitioner())


class TestCustom(PartitionerContract):
    @pytest.fixture
    def subject(self) -> PartitionerSubject:
        payloads = [b"customer-1;x", b"customer-2;"]
        written = {
            "kinesis.custom.separator": ";",
            "kinesis.producer.partitioner": f"{__name__}:ByCustomer",
        }
        properties = Properties.parse(written, complete=False)
        partitioner = ByCustomer.from_properties(properties)
        return PartitionerSubject(partitioner=partitioner, payloads=payloads, properties=properties)


class _IsAsync(RandomPartitioner):
    async def keys_of(self, data: bytes) -> Any:  # type: ignore[override]
        return "k", None


class _GivesOne(RandomPartitioner):
    def keys_of(self, data: bytes) -> Any:
        return ("k",)


class _GivesNothing(RandomPartitioner):
    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        return data.decode("latin-1")[:10], None


class _IsUsedUp(RandomPartitioner):
    left = 50

    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        self.left -= 1
        assert self.left, "used up"
        return "k", None


class _MakesNothing(RandomPartitioner):
    @classmethod
    def from_properties(cls, properties: Properties) -> Any:
        return None


BROKEN = [
    (_IsAsync, "test_its_keys_are_a_pair", "it must not be async"),
    (_GivesOne, "test_its_keys_are_a_pair", "not a pair"),
    (_GivesNothing, "test_kinesis_accepts_its_keys", "1 to 256 characters, not 0"),
    (_IsUsedUp, "test_kinesis_accepts_its_keys", "used up"),
    (_MakesNothing, "test_it_is_made_of_properties", "returned None"),
]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(("broken", "test", "message"), BROKEN)
def test_a_broken_partitioner_is_caught(broken: type[Partitioner], test: str, message: str) -> None:
    subject = PartitionerSubject(partitioner=broken())
    with pytest.raises((AssertionError, pytest.fail.Exception), match=message):
        getattr(PartitionerContract(), test)(subject)


def test_every_test_of_the_contract_has_a_part_that_breaks_it() -> None:
    tests = {name for name in dir(PartitionerContract) if name.startswith("test_")}
    assert tests == {test for _, test, _ in BROKEN}
