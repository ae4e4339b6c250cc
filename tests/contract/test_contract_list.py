"""The simplest publisher that keeps the contract keeps it."""

from __future__ import annotations

import pytest
from list_publisher import ListSubject

from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)


class TestListPublisher(RecordPublisherContract):
    @pytest.fixture
    def subject(self) -> ListSubject:
        return ListSubject()


class TestListFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self) -> ListSubject:
        return ListSubject()
