"""The generated reference of the options, and what the page about the local server names."""

from __future__ import annotations

import re

from attrs import fields

from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers_spark.aliases import ALIASES
from tests.docs.doc_pages import ROOT

_PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
# The options of a call are a list, and have its heading.
_SECTIONS = dict(
    re.findall(
        r"^(?:###|-) `((?:kinesis|aws)\..*?)`(.*?)(?=^(?:##|- `)|\Z)",
        _PAGE,
        re.DOTALL | re.MULTILINE,
    )
)
_HEADINGS = re.findall(r"^### `(.*)`$", _PAGE, re.MULTILINE)


def test_every_declaration_is_on_the_page_below_a_heading() -> None:
    keys = [option.full_key for option in all_declarations()]
    assert [key for key in _SECTIONS if key in keys] == keys
    assert all(key.startswith(tuple(_HEADINGS)) for key in keys)


def test_every_name_that_a_spark_source_accepts_is_with_its_option() -> None:
    for name, option in ALIASES.items():
        assert f"`{name}`" in _SECTIONS[option.full_key]


def test_defaults_are_shown_with_their_units() -> None:
    for text in ("`200` ms;", "`60` s.", "`67108864` bytes.", "`LATEST`;", "`true`."):
        assert f"*Default* {text}" in _PAGE
    assert "*Required*" in _SECTIONS["kinesis.streams"]


def test_secrets_are_marked() -> None:
    assert "Secret" in _SECTIONS["aws.credentials.provider.basic.secretkey"]


_TEXT = (ROOT / "docs" / "local-kinesis.md").read_text(encoding="utf-8")


def test_every_limit_and_behaviour_that_is_named_exists() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", _TEXT.split("## Faults")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    known = {field.name for value in (Limits, Behaviour) for field in fields(value)}
    assert named - {"Limits", "Behaviour"} <= known
    assert "resubscribe_seconds" in named
