"""What the tests of checkpointers begin with."""

from __future__ import annotations

import pytest

from tests.unit.checkpoints.checkpoint_support import Buffer


@pytest.fixture
async def buffer() -> Buffer:
    """A checkpointer that has seen one shard."""
    buffer = Buffer()
    await buffer.begin()
    return buffer
