"""Values have the type of their decoder, to a type checker, too: mypy checks this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from kinesis_publishers import read, records
from kinesis_publishers.formats import Format

if TYPE_CHECKING:
    from tests.integration.processing.processing_support import Orders

NUMBERS = Format[int](lambda number: b"%d" % number, int)


def test_the_values_of_a_plain_loop_have_the_type_of_the_format(orders: Orders) -> None:
    orders.put(1)
    with records(orders.properties(), decode=NUMBERS) as stream:
        record = next(stream)
    assert assert_type(record.value, int) == 0
    with records(orders.properties(), application="other", decode="json") as untyped:
        assert assert_type(next(untyped).value, Any) == 0


async def test_the_values_of_an_async_loop_have_the_type_of_the_function(orders: Orders) -> None:
    orders.put(1)
    async with read(orders.properties(), decode=bytes.decode) as stream:
        record = await anext(stream)
    assert assert_type(record.value, str) == "0"
