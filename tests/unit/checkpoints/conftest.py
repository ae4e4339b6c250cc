"""What the tests of DynamoDB and of the KCL's lease table begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.checkpoints.dynamodb_proxy import DynamoDbProxy
from tests.unit.checkpoints.kcl_support import KclTable, kcl_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
async def proxy(dynamodb_url: str) -> AsyncIterator[DynamoDbProxy]:
    async with DynamoDbProxy(dynamodb_url).serving() as proxy:
        yield proxy


@pytest.fixture
def table(dynamodb_url: str) -> Iterator[KclTable]:
    with kcl_table(dynamodb_url) as table:
        yield table
