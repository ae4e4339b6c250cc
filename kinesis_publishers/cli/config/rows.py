"""Options and their values as rows of a table. Pure; secrets never leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from kinesis_publishers.config.catalogue import ALL_OPTIONS, all_declarations, find_option
from kinesis_publishers.config.option import MASK, Option
from kinesis_publishers.config.reference import accepted_text, value_text

if TYPE_CHECKING:
    from kinesis_publishers.config import Properties
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["OptionRow", "ValueRow", "option_rows", "value_rows"]


@frozen(kw_only=True)
class OptionRow:
    """What can be configured with one key.

    Attributes:
        key: as it is written.
        section: the part of the reference in which it stands.
        accepted: what it may be.
        default: what it is unless given; ``None`` for nothing.
        unit: of the default, and of a number without a unit.
        doc: what it does.
        required: whether it must be given.
        secret: whether its value is masked.
        implemented: whether anything reads it.
    """

    key: str
    section: str
    accepted: str
    default: str | None
    unit: str | None
    doc: str
    required: bool
    secret: bool
    implemented: bool


@frozen(kw_only=True)
class ValueRow:
    """What one key is in a configuration.

    Attributes:
        key: as it is documented.
        value: as text, masked if it is secret; ``None`` for nothing.
        unit: of the value.
        source: ``given`` or ``default``.
    """

    key: str
    value: str | None
    unit: str | None
    source: str


def option_rows(text: str = "") -> list[OptionRow]:
    """Return the options whose key or description has ``text``, whatever its case."""
    wanted = text.lower()
    return [
        _option_row(option)
        for option in all_declarations()
        if wanted in option.full_key.lower() or wanted in option.doc.lower()
    ]


def value_rows(properties: Properties) -> list[ValueRow]:
    """Return what every option is, and what the given members of families are."""
    given = properties.to_dict()
    known = {option.full_key for option in ALL_OPTIONS}
    members = [option for key in given if key not in known and (option := find_option(key))]
    return [
        _value_row(properties, option, given.get(option.full_key))
        for option in (*ALL_OPTIONS, *members)
    ]


def _option_row(option: Option[Any]) -> OptionRow:
    return OptionRow(
        key=option.full_key,
        section=option.section,
        accepted=accepted_text(option),
        default=value_text(option.default),
        unit=option.unit,
        doc=option.doc,
        required=option.required,
        secret=option.secret,
        implemented=not option.unread,
    )


def _value_row(properties: Properties, option: Option[Any], written: Scalar | None) -> ValueRow:
    is_given, parsed = properties.is_given(option), properties.get(option)
    # What is parsed to more than one value reads best as it was written.
    value = str(written) if is_given and isinstance(parsed, tuple) else value_text(parsed)
    if is_given and option.secret:
        value = MASK
    return ValueRow(
        key=option.full_key,
        value=value,
        unit=option.unit if value is not None else None,
        source="given" if is_given else "default",
    )
