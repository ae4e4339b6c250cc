"""The generated reference page."""

from __future__ import annotations

from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers.config.reference import render_reference


def test_every_declaration_has_one_row_of_four_cells() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]
    assert len(rows) == len(all_declarations())
    for option in all_declarations():
        assert sum(f"| `{option.full_key}`" in row for row in rows) == 1
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}


def test_defaults_are_shown_with_their_units() -> None:
    page = render_reference()
    for cells in (
        "| `200` ms |",
        "| `60` s |",
        "| `67108864` bytes |",
        "| `LATEST` |",
        "| `true` |",
        "| required |",
        "| none |",
        "| `1.5` |",
    ):
        assert cells in page


def test_secrets_and_what_nothing_reads_yet_are_marked() -> None:
    lines = render_reference().splitlines()
    (secret,) = [line for line in lines if "`aws.credentials.provider.basic.secretkey`" in line]
    (idle,) = [line for line in lines if "`kinesis.shard.idle.interval`" in line]
    assert "Secret" in secret
    assert "Not read: this version has no watermarks" in idle


def test_each_section_is_there_once() -> None:
    headings = [line for line in render_reference().splitlines() if line.startswith("## ")]
    assert len(headings) == len(set(headings)) == len({o.section for o in all_declarations()})
