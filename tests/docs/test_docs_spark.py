"""The options in the code on the pages are accepted, without Spark and before AWS is asked."""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.batch_reader import checked_bounds
from kinesis_publishers_spark.stream_reader import refuse_ending_position
from tests.docs.doc_pages import PAGES, ROOT, blocks_of, is_python, name_of

_BLOCKS = [
    pytest.param(block.code, id=f"{name_of(page)}:{block.line}")
    for page in PAGES
    for block in blocks_of(page)
    if is_python(block) and 'format("kinesis")' in block.code and ".load()" in block.code
    # Whose options are not all in the block cannot be checked without running it.
    if "options(**" not in block.code
]
# What a block computes from rows before it loads.
_COMPUTED = {
    "json": json,
    "positions": {
        "shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "7"}
    },
}


def value_of(argument: ast.expr) -> str:
    return str(eval(compile(ast.Expression(argument), "page", "eval"), dict(_COMPUTED)))


def options_in(block: str) -> dict[str, str]:
    """Return what the block gives to ``.option(key, value)`` and ``.options(key=value)``."""
    options: dict[str, str] = {}
    for call in ast.walk(ast.parse(block)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr == "option" and "checkpointLocation" not in ast.dump(call.args[0]):
                options[value_of(call.args[0]).lower()] = value_of(call.args[1])
            elif call.func.attr == "options":
                named = [one for one in call.keywords if one.arg is not None]
                options |= {str(one.arg).lower(): value_of(one.value) for one in named}
    return options


@pytest.mark.parametrize("block", _BLOCKS)
def test_the_options_of_every_block_are_accepted(block: str) -> None:
    properties = parse_options(options_in(block))
    if "readStream" in block:
        refuse_ending_position(properties)
        return
    loaded_at = datetime(2026, 7, 1, tzinfo=UTC)
    bounds = checked_bounds(properties, loaded_at=loaded_at)
    has_ending = any("ending" in key or "endpos" in key for key in options_in(block))
    assert has_ending == (bounds.ends.default.timestamp != loaded_at or bool(bounds.scopes))


def test_the_configuration_that_the_page_names_is_spark_s() -> None:
    page = (ROOT / "docs" / "spark-batch.md").read_text(encoding="utf-8")
    (key,) = re.findall(r'spark\.conf\.set\("(.*?)", "true"\)', page)
    source = pytest.importorskip("pyspark.sql.worker.plan_data_source_read").__file__
    assert key in Path(source).read_text(encoding="utf-8")
