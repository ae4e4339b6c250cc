"""Fixtures for tests of code that reads Kinesis; pytest finds them by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers.testing.manual_clock import ManualClock


@pytest.fixture
def local_kinesis() -> Iterator[LocalKinesis]:
    """An empty local Kinesis in a thread: AWS's limits on reading, none on the rate of writing."""
    # Imported here: pytest loads this module in every project where the package is installed,
    # also where the local Kinesis is not.
    from kinesis_publishers.testing import Limits, LocalKinesis

    with LocalKinesis.in_thread(Limits.aws()) as server:
        yield server


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that moves only when the test says so."""
    from kinesis_publishers.testing.manual_clock import ManualClock

    return ManualClock()
