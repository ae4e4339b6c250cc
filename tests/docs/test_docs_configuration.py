"""The generated reference of the options."""

from __future__ import annotations

import re

from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers_spark.aliases import ALIASES
from tests.docs.doc_pages import ROOT

_PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
_SECTIONS = dict(re.findall(r"^### `([^`]*)`\n(.*?)(?=^##|\Z)", _PAGE, re.DOTALL | re.MULTILINE))


def test_every_declaration_has_a_heading_and_with_it_an_anchor() -> None:
    assert re.findall(r"^### `(.*)`$", _PAGE, re.MULTILINE) == [
        option.full_key for option in all_declarations()
    ]


def test_every_name_that_a_spark_source_accepts_is_with_its_option() -> None:
    for name, option in ALIASES.items():
        assert f"`{name}`" in _SECTIONS[option.full_key]


def test_defaults_are_shown_with_their_units() -> None:
    for text in (
        "`200` ms;",
        "`60` s.",
        "`67108864` bytes.",
        "`LATEST`;",
        "`true`.",
        "none: it is required;",
    ):
        assert f"*Default* {text}" in _PAGE


def test_secrets_are_marked() -> None:
    assert "Secret" in _SECTIONS["aws.credentials.provider.basic.secretkey"]
