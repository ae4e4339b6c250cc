"""A plugin that does not fit fails when it is loaded, or when it is first used, and says why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import CheckpointStore, RecordPublisher, RecordPublisherFactory
from kinesis_publishers.abc import ForeignTable, ShardAssigner, SharedReading
from kinesis_publishers.assembly import open_services, publisher_factory_class
from kinesis_publishers.checkpoints import MemoryCheckpointStore
from kinesis_publishers.config import Properties
from kinesis_publishers.config.plugins import load_class, with_overrides
from kinesis_publishers.errors import PluginLoadError
from kinesis_publishers.publishers.fanout import FanOutRecordPublisherFactory
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    ScriptedPublisherFactory,
    ShardReader,
    batch_of,
    sample_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_publishers.testing.manual_clock import ManualClock

_HERE = __name__


class Good(ScriptedPublisherFactory):
    pass


class FromPropertiesIsAsync(ScriptedPublisherFactory):
    @classmethod
    async def from_properties(cls, properties: Any, context: Any) -> Any:
        return cls()


class CreateIsNotAsync(ScriptedPublisherFactory):
    def create(self, starting_position: Any, shard: Any) -> Any:
        return None


class WrongInTwoWays(ScriptedPublisherFactory):
    close = None

    def create(self, starting_position: Any, shard: Any) -> Any:
        return None


class HasMoreOptionalArguments(ScriptedPublisherFactory):
    async def create(self, position: Any, *more: Any, metrics: Any = None) -> Any:
        return None


class MakesNothing(ScriptedPublisherFactory):
    @classmethod
    def from_properties(cls, properties: Any, context: Any) -> Any:
        return None


def load(kind: type) -> type:
    return load_class(f"{_HERE}:{kind.__name__}", RecordPublisherFactory)


@pytest.mark.parametrize("kind", [Good, HasMoreOptionalArguments])
def test_what_can_be_called_as_the_interface_fits(kind: type) -> None:
    assert load(kind) is kind


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (FromPropertiesIsAsync, "from_properties must not be async"),
        (CreateIsNotAsync, r"create must be async \(async def create\)"),
        (WrongInTwoWays, r"close must be async .*; create must be async"),
    ],
)
def test_a_method_that_does_not_fit_is_named_at_load(kind: type, message: str) -> None:
    with pytest.raises(PluginLoadError, match=f"{kind.__name__} does not fit: .*{message}"):
        load(kind)


async def test_a_factory_that_is_none_is_named_when_it_is_built() -> None:
    properties = {
        "aws.region": "eu-west-1",
        "kinesis.streams": "orders",
        "kinesis.stream.recordpublisher": f"{_HERE}:MakesNothing",
    }
    with pytest.raises(PluginLoadError, match=r"from_properties\(\) returned NoneType"):
        async with open_services(Properties.parse(properties)):
            pass


class RunIsNotAsync(RecordPublisher):
    def run(self, consumer: Any) -> Any:
        return None


class ReturnsNothing(RecordPublisher):
    async def run(self, consumer: Any) -> Any:
        await consumer(batch_of(sample_records(1)))


class Makes(ScriptedPublisherFactory):
    def __init__(self, publisher: Any) -> None:
        super().__init__()
        self._publisher = publisher

    async def create(self, starting_position: Any, shard: Any) -> Any:
        return self._publisher


@pytest.mark.parametrize(
    ("publisher", "message"),
    [
        (None, r"create\(\) of the record publisher factory returned NoneType"),
        (RunIsNotAsync(), r"RunIsNotAsync does not fit: run must be async"),
        (ReturnsNothing(), r"run\(\) of ReturnsNothing returned None: return RunResult.INCOMPLETE"),
    ],
)
async def test_a_publisher_that_does_not_fit_is_named_at_first_use(
    publisher: Any, message: str, manual_clock: ManualClock
) -> None:
    reader = ShardReader(factory=Makes(publisher), clock=manual_clock)
    with pytest.raises(PluginLoadError, match=message):
        await reader.read()


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package that announces the publisher ``mine`` as a class of the module ``x``."""

    def install(package: str, value: str) -> None:
        directory = tmp_path / package
        information = directory / f"{package}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        (information / "entry_points.txt").write_text(
            f"[kinesis_publishers.record_publishers]\nmine = {value}\n"
        )
        (directory / f"{package}_module.py").write_text(
            "from kinesis_publishers.testing.fakes import ScriptedPublisherFactory\n"
            "class Factory(ScriptedPublisherFactory): pass\n"
        )
        monkeypatch.syspath_prepend(directory)
        monkeypatch.delitem(sys.modules, f"{package}_module", raising=False)

    return install


def _load(name: str) -> type[RecordPublisherFactory]:
    values = {"kinesis.streams": "orders", "kinesis.stream.recordpublisher": name}
    return publisher_factory_class(Properties.parse(values))


def test_an_installed_entry_point_is_found(announce: Callable[[str, str], None]) -> None:
    announce("one", "one_module:Factory")
    assert _load("mine").__module__ == "one_module"


def test_two_packages_with_the_same_name_are_told_apart_by_the_user(
    announce: Callable[[str, str], None],
) -> None:
    announce("one", "one_module:Factory")
    announce("two", "two_module:Factory")
    with pytest.raises(
        PluginLoadError,
        match=r"has several definitions \(one_module:Factory of one 1.0; "
        r"two_module:Factory of two 1.0\): name the class itself",
    ):
        _load("mine")
    assert _load("two_module:Factory").__module__ == "two_module"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("one_module:Missing", "one_module has no 'Missing'"),
        ("no_such_module:X", "there is no module 'no_such_module'"),
        ("one_module", "not of the form module:Class"),
    ],
)
def test_a_broken_entry_point_says_who_announced_it(
    announce: Callable[[str, str], None], value: str, message: str
) -> None:
    announce("one", value)
    with pytest.raises(PluginLoadError, match=r"entry point 'mine' of one 1\.0") as caught:
        _load("mine")
    assert message in str(caught.value)


def test_a_mistyped_entry_point_is_recognised(announce: Callable[[str, str], None]) -> None:
    announce("one", "one_module:Factory")
    expected = r"'minne' is no entry point .*installed: mine\); did you mean mine\?"
    with pytest.raises(PluginLoadError, match=expected):
        _load("minne")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_dependency", "needs 'no_such_dependency', which is not installed"),
        ("raise RuntimeError('boom')", "failed with RuntimeError: boom"),
        ("raise AttributeError('own words')", "failed with AttributeError: own words"),
        ("raise SystemExit('no licence')", "failed with SystemExit: no licence"),
        ("def __getattr__(name): raise ImportError('lazy')", "failed with ImportError: lazy"),
    ],
)
def test_a_module_that_fails_says_why(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_plugin", raising=False)
    with pytest.raises(PluginLoadError, match=message):
        load_class("failing_plugin:X", RecordPublisherFactory)


class ClosesWithArguments(MemoryCheckpointStore):
    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        await super().__aexit__(kind, error, traceback)


def test_a_store_may_name_what_its_context_is_left_with() -> None:
    reference = f"{_HERE}:ClosesWithArguments"
    assert load_class(reference, CheckpointStore) is ClosesWithArguments


class PollsInAnotherWay(PollingRecordPublisherFactory):
    pass


class SubscribesInAnotherWay(FanOutRecordPublisherFactory):
    pass


class PollsAndSaysSo(PollingRecordPublisherFactory):
    reads_ranges = True


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("POLLING", {"reads_ranges"}),
        ("EFO", {"reads_ranges", "subscribes", "needs_registration"}),
        ("kinesis_publishers.testing.fakes:ScriptedPublisherFactory", set()),
        # What they inherit the code from need not hold for what they do.
        (f"{_HERE}:PollsInAnotherWay", set()),
        (f"{_HERE}:SubscribesInAnotherWay", set()),
        (f"{_HERE}:PollsAndSaysSo", {"reads_ranges"}),
    ],
)
def test_a_factory_says_what_its_publishers_can_do(name: str, capabilities: set[str]) -> None:
    values = {"kinesis.stream.recordpublisher": name, "kinesis.stream.efo.consumername": "app"}
    factory = publisher_factory_class(Properties.parse({"kinesis.streams": "orders"} | values))
    all_of_them = ("reads_ranges", "subscribes", "needs_registration")
    assert {one for one in all_of_them if getattr(factory, one)} == capabilities


class AsyncWhereItIsNot(ShardAssigner):
    async def may_deliver(self, shard: Any) -> bool:
        return False


class AsyncInAStore(MemoryCheckpointStore):
    def report(self, worker: str, *, is_leaving: bool = False) -> bool:
        return True


class NoMethodInAStore(MemoryCheckpointStore):
    report = "quarterly"


@pytest.mark.parametrize(
    ("optional", "by", "problem"),
    [
        (SharedReading, AsyncWhereItIsNot, "may_deliver must not be async"),
        (ForeignTable, AsyncInAStore, "report must be async"),
        (ForeignTable, NoMethodInAStore, "report must be async"),
    ],
)
def test_an_optional_method_that_does_not_fit_is_an_error(
    optional: type, by: type, problem: str
) -> None:
    with pytest.raises(PluginLoadError, match=f"{by.__name__} does not fit: {problem}"):
        with_overrides(optional(), by.__new__(by))
