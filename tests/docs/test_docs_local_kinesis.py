"""The page about the local server names existing limits and behaviours."""

from __future__ import annotations

import re

from attrs import fields

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from tests.docs.doc_pages import ROOT

_TEXT = (ROOT / "docs" / "local-kinesis.md").read_text(encoding="utf-8")


def test_every_limit_and_behaviour_that_is_named_exists() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", _TEXT.split("## Faults")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    known = {field.name for value in (Limits, Behaviour) for field in fields(value)}
    assert named - {"Limits", "Behaviour"} <= known
    assert "resubscribe_seconds" in named
