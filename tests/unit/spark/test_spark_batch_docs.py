"""The code in the page about batch reads: it compiles, and its options are accepted."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.batch_bounds import BatchBounds

_PAGE = (Path(__file__).parents[3] / "docs" / "spark-batch.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)


def options_in(block: str) -> dict[str, str]:
    """Return what the block gives to ``.option(key, value)``."""
    calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    return {
        ast.literal_eval(call.args[0]).lower(): ast.literal_eval(call.args[1])
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "option"
    }


@pytest.mark.parametrize("block", [block for block in _BLOCKS if ".load()" in block])
def test_the_options_of_every_block_are_accepted(block: str) -> None:
    properties = Properties.from_spark_options(options_in(block))
    loaded_at = datetime(2026, 7, 1, tzinfo=UTC)
    bounds = BatchBounds.from_properties(properties, loaded_at=loaded_at)
    assert bounds.until.timestamp != loaded_at or bounds.named_shards


def test_the_configuration_that_the_page_names_is_spark_s() -> None:
    (setting,) = [block for block in _BLOCKS if "spark.conf.set" in block]
    (call,) = [node for node in ast.walk(ast.parse(setting)) if isinstance(node, ast.Call)]
    key = ast.literal_eval(call.args[0])
    source = pytest.importorskip("pyspark.sql.worker.plan_data_source_read").__file__
    assert key in Path(source).read_text(encoding="utf-8")
