"""The examples in the documentation of the emulator run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attrs import fields

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits

_PAGE = Path(__file__).parents[3] / "docs" / "local-kinesis.md"
_TEXT = _PAGE.read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", _BLOCKS)
def test_an_example_runs(block: str) -> None:
    exec(compile(block, str(_PAGE), "exec"), {})


def test_every_limit_and_behaviour_that_is_named_exists() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", _TEXT.split("## Faults")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    known = {field.name for value in (Limits, Behaviour) for field in fields(value)}
    assert named - {"Limits", "Behaviour"} <= known
    assert "resubscribe_seconds" in named
