"""The contracts of factories and registrars can fail, each test for a part that breaks it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kinesis_publishers import StartingPosition
from kinesis_publishers.abc import StreamConsumerRegistrar
from kinesis_publishers.errors import PluginLoadError, StreamNotFoundError
from kinesis_publishers.testing.contracts import (
    RecordPublisherFactoryContract,
    RegistrarSubject,
    StreamConsumerRegistrarContract,
    subjects,
)
from tests.contract.list_publisher import ListFactory, ListSubject
from tests.contract.test_contract_registrars import registering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import PublisherContext, RecordPublisher, Shard


class IsNotAsync(ListFactory):
    def create(self, starting_position: StartingPosition, shard: Shard) -> Any:
        return self.publisher_class(shard, starting_position, self.context)


class CallsAtOnce(ListFactory):
    @classmethod
    def from_properties(cls, properties: Any, context: PublisherContext) -> Any:
        with pytest.raises(StreamNotFoundError):
            context.control_plane.describe_stream("orders").send(None)  # type: ignore[attr-defined]
        return super().from_properties(properties, context)


class ReturnsNothing(ListFactory):
    @classmethod
    def from_properties(cls, properties: Any, context: PublisherContext) -> Any:
        super().from_properties(properties, context)


class AcceptsAnything(ListFactory):
    @classmethod
    def from_properties(cls, properties: Any, context: PublisherContext) -> Any:
        return cls(context)


class MakesOnePublisher(ListFactory):
    only: RecordPublisher | None = None

    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        self.only = self.only or await super().create(starting_position, shard)
        return self.only


class NeedsPreparing(ListFactory):
    is_prepared = False

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        self.is_prepared = True

    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        publisher: Any = await super().create(starting_position, shard)
        publisher.cursor = None if self.is_prepared else len(publisher.records)
        return publisher


class NeedsAStream(ListFactory):
    async def prepare(self, stream_arns: Sequence[str]) -> None:
        self.first = stream_arns[0]


class ForgetsThePosition(ListFactory):
    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        return await super().create(StartingPosition.trim_horizon(), shard)


class LeavesATask(ListFactory):
    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        future = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(asyncio.wait([future]))
        return await super().create(starting_position, shard)


class ClosesOnce(ListFactory):
    is_closed = False

    async def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True


FACTORIES: list[tuple[type[ListFactory], str, str]] = [
    (IsNotAsync, "test_its_class_can_be_named_in_the_properties", "create must be async"),
    (CallsAtOnce, "test_good_properties_need_no_call", "it only reads the"),
    (ReturnsNothing, "test_good_properties_need_no_call", "led to None"),
    (AcceptsAnything, "test_bad_properties_are_refused_at_once", "was accepted"),
    (MakesOnePublisher, "test_it_reads_many_shards_at_once", "same publisher"),
    (NeedsPreparing, "test_it_reads_unprepared_and_closes", "was not read"),
    (NeedsAStream, "test_it_can_be_prepared_for_no_streams", "there is nothing to do"),
    (ForgetsThePosition, "test_publishers_begin_where_they_are_told_to", "AFTER_.*passes that on"),
    (LeavesATask, "test_it_reads_unprepared_and_closes", "left running"),
    (ClosesOnce, "test_it_can_be_closed_unused_and_twice", "when it was called twice"),
]


@pytest.mark.parametrize(("broken", "test", "message"), FACTORIES)
async def test_a_broken_factory_is_caught(
    broken: type[ListFactory], test: str, message: str
) -> None:
    class Subject(ListSubject):
        factory_class: ClassVar = broken

    # What does not fit at all is refused as a plugin is.
    with pytest.raises((AssertionError, PluginLoadError), match=message):
        await getattr(RecordPublisherFactoryContract(), test)(Subject())


class _Wrapper(StreamConsumerRegistrar):
    """Does as our own registrar does, but for what a subclass breaks."""

    def __init__(self, context: PublisherContext) -> None:
        self.context = context
        self.ours = registering("EAGER", context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        await self.ours.prepare(stream_arns)

    async def consumer_arn(self, stream_arn: str) -> str:
        return await self.ours.consumer_arn(stream_arn)

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return await self.ours.renew(stream_arn, consumer_arn)

    async def close(self) -> None:
        await self.ours.close()


class _RegistersItself(_Wrapper):
    async def consumer_arn(self, stream_arn: str) -> str:
        plane = self.context.control_plane
        return (await plane.register_stream_consumer(stream_arn, "billing")).arn


class MixesStreamsUp(_Wrapper):
    first = ""

    async def consumer_arn(self, stream_arn: str) -> str:
        self.first = self.first or await super().consumer_arn(stream_arn)
        return self.first


class RegistersOnePerShard(_Wrapper):
    count = 0

    async def consumer_arn(self, stream_arn: str) -> str:
        self.count += 1
        plane, name = self.context.control_plane, f"billing-{self.count}"
        return (await plane.register_stream_consumer(stream_arn, name)).arn


class DoesNotWait(_RegistersItself):
    async def prepare(self, stream_arns: Sequence[str]) -> None:
        """Prepare nothing."""


class AlwaysRegistersAgain(_Wrapper):
    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        plane = self.context.control_plane
        return (await plane.register_stream_consumer(stream_arn, "another")).arn


class NeverRegistersAgain(_Wrapper):
    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return consumer_arn


class RenewsWithNonsense(_Wrapper):
    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return "billing"


class LeavesConsumers(_Wrapper):
    async def close(self) -> None:
        """Leave everything."""


class RemovesEverything(_Wrapper):
    async def close(self) -> None:
        plane = self.context.control_plane
        for stream in ("orders", "orders-2"):
            arn = (await plane.describe_stream(stream)).identity.arn
            for consumer in await plane.list_stream_consumers(arn):
                await plane.deregister_stream_consumer(consumer.arn)


class DoesNotRollBack(DoesNotWait):
    async def prepare(self, stream_arns: Sequence[str]) -> None:
        for stream_arn in stream_arns:
            await self.consumer_arn(stream_arn)


class HidesRefusals(_Wrapper):
    async def consumer_arn(self, stream_arn: str) -> str:
        try:
            return await super().consumer_arn(stream_arn)
        except Exception as error:
            raise TimeoutError("it takes too long") from error


class SwallowsCancellation(_Wrapper):
    async def consumer_arn(self, stream_arn: str) -> str:
        try:
            return await super().consumer_arn(stream_arn)
        except asyncio.CancelledError:
            return "cancelled"


class DescribesAlways(_Wrapper):
    async def close(self) -> None:
        await super().close()
        await self.context.control_plane.describe_stream("orders")


class RenewsWhatIsGone(_Wrapper):
    async def consumer_arn(self, stream_arn: str) -> str:
        return f"{stream_arn}/consumer/billing:1"

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return consumer_arn


REGISTRARS: list[tuple[type[_Wrapper], str, str]] = [
    (MixesStreamsUp, "test_each_stream_has_an_active_consumer", "another stream"),
    (RegistersOnePerShard, "test_the_shards_of_a_stream_share_a_consumer", "ten shards"),
    (DoesNotWait, "test_each_stream_has_an_active_consumer", "while it was CREATING"),
    (AlwaysRegistersAgain, "test_a_consumer_that_is_still_there_is_kept", "the same ARN says"),
    (NeverRegistersAgain, "test_a_consumer_that_is_gone_is_replaced", "register it again"),
    (RenewsWithNonsense, "test_a_consumer_that_is_gone_is_replaced", "billing, not ACTIVE"),
    (LeavesConsumers, "test_it_removes_only_what_it_has_registered", "close\\(\\) left"),
    (RemovesEverything, "test_it_removes_only_what_it_has_registered", "did not create"),
    (RemovesEverything, "test_closing_never_fails", "log how to remove"),
    (DescribesAlways, "test_it_can_be_closed_unused_and_twice", "(made calls|raised)"),
    (DoesNotRollBack, "test_all_streams_are_prepared_or_none", "remove again"),
    (SwallowsCancellation, "test_it_can_be_cancelled_while_it_waits", "never swallow it"),
    (HidesRefusals, "test_a_refusal_is_passed_on", "AWS denied access"),
]
# Of the cases of a test, the one that catches.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "test_each_stream_has_an_active_consumer": {"is_prepared": True},
    "test_a_refusal_is_passed_on": {"operation": "DescribeStreamConsumer"},
}
UNREGISTERING: list[tuple[type[_Wrapper], str, str]] = [
    (_Wrapper, "test_without_registering_no_call_is_made", "calls were made"),
    (
        RenewsWhatIsGone,
        "test_a_lost_consumer_of_others_is_an_error",
        "raise ConsumerNotFoundError",
    ),
]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "CANCELLING_SECONDS", 0.1)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(("broken", "test", "message"), [*REGISTRARS, *UNREGISTERING])
async def test_a_broken_registrar_is_caught(
    broken: type[_Wrapper], test: str, message: str
) -> None:
    registers = (broken, test, message) not in UNREGISTERING
    subject = RegistrarSubject(lambda context, _: broken(context), registers=registers)
    run = getattr(StreamConsumerRegistrarContract(), test)
    with pytest.raises(AssertionError, match=message):
        await run(subject, **ARGUMENTS.get(test, {}))


@pytest.mark.parametrize(
    ("contract", "cases", "shared"),
    [
        (
            RecordPublisherFactoryContract,
            FACTORIES,
            # What it checks is checked of every publisher as well.
            {"test_a_shard_consumer_reads_a_shard_to_its_end"},
        ),
        (
            StreamConsumerRegistrarContract,
            [*REGISTRARS, *UNREGISTERING],
            set(),
        ),
    ],
)
def test_every_test_of_a_contract_has_a_part_that_breaks_it(
    contract: type, cases: list[tuple[type, str, str]], shared: set[str]
) -> None:
    tests = {name for name in dir(contract) if name.startswith("test_")}
    assert tests - {case[1] for case in cases} == shared
