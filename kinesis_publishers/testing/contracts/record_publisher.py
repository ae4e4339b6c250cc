"""The contract of every :class:`~kinesis_publishers.RecordPublisher`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.contracts.base import refuse_missing_fixture
from kinesis_publishers.testing.contracts.publisher_consumer import ConsumerContract
from kinesis_publishers.testing.contracts.publisher_delivery import DeliveryContract
from kinesis_publishers.testing.contracts.publisher_positions import PositionContract

if TYPE_CHECKING:
    from kinesis_publishers.testing.contracts.subjects import PublisherSubject

__all__ = ["RecordPublisherContract"]


class RecordPublisherContract(DeliveryContract, PositionContract, ConsumerContract):
    """What every publisher owes, whatever it reads from.

    Subclass it in a test module, with a name that begins with ``Test``, and override the fixture
    ``subject``. Its tests are coroutines: mark the subclass with ``@pytest.mark.asyncio`` unless
    pytest-asyncio runs in its mode "auto".
    """

    @pytest.fixture
    def subject(self) -> PublisherSubject:
        """How to get at the publisher that is tested."""
        refuse_missing_fixture(RecordPublisherContract, "PublisherSubject")
