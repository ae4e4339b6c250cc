"""No dead knobs: something reads every option."""

from __future__ import annotations

import ast

import attrs

from kinesis_publishers.config.catalogue import all_sections
from kinesis_publishers.config.option import Section
from tests.architecture.sources import sources


def attributes_read_outside_config() -> frozenset[str]:
    """Return every attribute name that the code outside of the configuration reads."""
    return frozenset(
        node.attr
        for source in sources().values()
        if "config" not in source.path.parts
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def _names_that_read(section: type[Section], field: str) -> set[str]:
    """Return the names by which the value of ``field`` can be read: its own, and properties."""
    properties = {name: one for name, one in vars(section).items() if isinstance(one, property)}
    return {field} | {
        name for name, one in properties.items() if field in one.fget.__code__.co_names
    }


def test_every_section_is_in_the_catalogue() -> None:
    # First: it imports the sections of the extensions.
    listed = set(all_sections())
    of_the_package = {
        one for one in Section.__subclasses__() if one.__module__.startswith("kinesis_publishers")
    }
    assert of_the_package == listed


def test_every_field_of_a_section_is_read_outside_of_the_configuration() -> None:
    read = attributes_read_outside_config()
    unread = {
        f"{section.__name__}.{field.name}"
        for section in all_sections()
        for field in attrs.fields(section)
        if not _names_that_read(section, field.name) & read
    }
    assert not unread
