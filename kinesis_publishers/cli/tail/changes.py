"""What a tail changes of the properties of an application, with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import Factory, define

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from kinesis_publishers.config import Properties
    from kinesis_publishers.config.option import Option

__all__ = ["Changes"]


@define(kw_only=True)
class Changes:
    """Collects changes of properties.

    Attributes:
        draft: the properties of the application and of the command line, not checked as a whole.
        chosen: the full keys of the options that the command line names itself.
        values: what goes before ``draft``, by full key; ``None`` leaves an option out.
        reasons: what is left out and why, a sentence each.
    """

    draft: Properties
    chosen: AbstractSet[str]
    values: dict[str, str | None] = Factory(dict)
    reasons: list[str] = Factory(list)

    def leave_out(self, options: Iterable[Option[Any]]) -> list[str]:
        """Leave out those of ``options`` that only the file names; return their full keys."""
        keys = [
            option.full_key
            for option in options
            if self.draft.is_given(option) and option.full_key not in self.chosen
        ]
        self.values |= dict.fromkeys(keys)
        return keys

    def say_left_out(self, keys: Iterable[str], why: str) -> None:
        """Add the sentence that ``keys``, if there are any, are left out."""
        if named := list(keys):
            verb = "is" if len(named) == 1 else "are"
            self.reasons.append(f"{', '.join(named)} {verb} left out: {why}")
