"""The simplest publisher that keeps the contract keeps it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from tests.contract.list_publisher import ListPublisher, ListSubject, subject_of

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatchConsumer


class SlowDisk(ListPublisher):
    """Takes its time, which no clock of a test can move."""

    async def read(self, consumer: RecordBatchConsumer) -> None:
        await asyncio.to_thread(time.sleep, 0.3)
        await super().read(consumer)


async def test_a_publisher_may_wait_for_something_real() -> None:
    await RecordPublisherContract().test_each_record_is_delivered_once_in_order(
        subject_of(SlowDisk)
    )


class TestListPublisher(RecordPublisherContract):
    @pytest.fixture
    def subject(self) -> ListSubject:
        return ListSubject()


class TestListFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self) -> ListSubject:
        return ListSubject()
