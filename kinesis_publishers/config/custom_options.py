"""The keys ``kinesis.custom.*``: options of a class that somebody else wrote.

They are carried unread until that class declares them, and are then as strict as all others.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from kinesis_publishers.config.assignments import Assignments
from kinesis_publishers.config.catalogue import nested_option
from kinesis_publishers.config.option import Namespace
from kinesis_publishers.config.options import aws, publisher
from kinesis_publishers.config.options.custom import CUSTOM, PREFIX
from kinesis_publishers.errors import (
    ConfigError,
    InvalidOptionError,
    MissingOptionError,
    PluginLoadError,
    UnknownOptionError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesis_publishers.config.option import Lookup, Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["assign_custom", "unread_custom_problems"]

# Credentials may come from a role whose credentials come from a role, and so on.
_DEEPEST_PROVIDER = 4


def assign_custom(
    written: Mapping[str, tuple[str, Scalar]], options: Sequence[Option[Any]], lookup: Lookup
) -> Assignments:
    """Resolve the custom keys that were written, by the declarations of whoever reads them.

    Args:
        written: the key as it was written and the value, by the key without its namespace.
        options: all that are known.
        lookup: the configuration.

    Raises:
        PluginLoadError: a declaration is not one of a custom key.
    """
    _check_declarations(options)
    assignments = Assignments()
    known = {option.key.lower(): option for option in options}
    for key, (written_key, value) in written.items():
        option = known.get(key.lower())
        if option is not None:
            assignments.add(option, written_key, value)
        elif not _has_other_reader(lookup):
            assignments.problems.append(_unknown(written_key, key, known))
    found = {assignment.option.key for assignment in assignments.found}
    for option in options:
        if option.required and option.key not in found:
            assignments.problems.append(
                MissingOptionError(
                    f"{option.full_key} is required: set it to {option.parser.accepts}"
                )
            )
    return assignments


def unread_custom_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield the custom keys that nobody can read: the publisher is one of this package's."""
    name = lookup.get(publisher.RECORD_PUBLISHER)
    if name not in {"POLLING", "EFO"} or _has_other_reader(lookup):
        return
    for key in lookup.members(CUSTOM):
        yield InvalidOptionError(
            f"{lookup.written_key(CUSTOM.of(key))} is an option of a publisher of your own, and "
            f"{publisher.RECORD_PUBLISHER.full_key} is {name}, which does not read it: name your "
            "publisher, or remove the key"
        )


def _has_other_reader(lookup: Lookup) -> bool:
    """Say whether there is a class for credentials, which is given every key as written."""
    depths = range(_DEEPEST_PROVIDER)
    return any(lookup.is_given(nested_option(aws.CUSTOM_CLASS, depth)) for depth in depths)


def _check_declarations(options: Sequence[Option[Any]]) -> None:
    for option in options:
        if not option.key.startswith(PREFIX) or option.namespace is not Namespace.OURS:
            # Perhaps only the namespace is missing, or is a part of the key.
            (namespace,) = Namespace.OURS.value
            name = option.key.removeprefix(namespace).removeprefix(PREFIX)
            raise PluginLoadError(
                f"The option {option.full_key!r} is not one of a custom class: declare it with "
                f"Option(key={PREFIX + name!r}, namespace=Namespace.OURS, ...)"
            )


def _unknown(written_key: str, key: str, known: Mapping[str, Option[Any]]) -> UnknownOptionError:
    # Most of a key is what they all begin with: one ending is like another only if they are close.
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.85)
    listed = ", ".join(option.full_key for option in known.values()) or "none"
    hint = f"did you mean {known[near[0]].full_key}?" if near else f"the publisher knows {listed}"
    return UnknownOptionError(f"{written_key}: unknown option; {hint}")
