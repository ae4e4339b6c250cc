"""From the keys that a user wrote to options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field, frozen

from kinesis_publishers.config.catalogue import find_option, nearest_key
from kinesis_publishers.errors import ConfigError, InvalidOptionError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["Assignment", "Assignments", "assign_properties"]


@frozen(kw_only=True)
class Assignment:
    """One value for one option.

    Attributes:
        option: what the value is for.
        written_key: the key as the user wrote it.
        value: the value as the user wrote it.
    """

    option: Option[Any]
    written_key: str
    value: Scalar = field(repr=False)  # it may be a secret


@define
class Assignments:
    """What a source of properties says, with what is wrong with its keys."""

    found: list[Assignment] = Factory(list)
    problems: list[ConfigError] = Factory(list)

    def add(self, option: Option[Any], written_key: str, value: Scalar) -> None:
        """Add one value."""
        self.found.append(Assignment(option=option, written_key=written_key, value=value))

    def override(self, values: Mapping[str, Scalar | None]) -> None:
        """Let ``values`` go before what has been found; ``None`` takes it away."""
        given = {key: value for key, value in values.items() if value is not None}
        more = assign_properties(given)
        taken = {one.option.key for one in more.found}
        taken |= {
            option.key for key in values.keys() - given.keys() if (option := find_option(key))
        }
        self.found = [one for one in self.found if one.option.key not in taken] + more.found
        self.problems += more.problems

    def add_moved(self, key: str, advice: str) -> None:
        """Record that ``key`` is an option of another connector, with what to do instead."""
        self.problems.append(UnknownOptionError(f"{key}: not an option of this source; {advice}"))

    def add_unknown(self, key: object, *, more: tuple[str, ...] = ()) -> None:
        """Record that nothing is known as ``key``; its value may be a secret and is not shown."""
        if not isinstance(key, str):
            self.problems.append(InvalidOptionError(f"{key!r}: a key must be a text"))
            return
        nearest = nearest_key(key, more=more)
        hint = f"did you mean {nearest}?" if nearest else "nothing similar is known"
        self.problems.append(UnknownOptionError(f"{key}: unknown option; {hint}"))


def assign_properties(values: Mapping[Any, Scalar]) -> Assignments:
    """Resolve the keys of a properties dict."""
    assignments = Assignments()
    for key, value in values.items():
        option = find_option(key) if isinstance(key, str) else None
        if option is not None:
            assignments.add(option, key, value)
        else:
            assignments.add_unknown(key)
    return assignments
