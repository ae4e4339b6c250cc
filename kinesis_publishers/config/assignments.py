"""Resolves what a user wrote to options: the keys of properties, or keywords in their place.

The keys ``kinesis.custom.*`` are options of a class outside this package. They stay unread until
that class declares them, and are then checked like all others.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from attrs import Factory, define, field, frozen

from kinesis_publishers.config.catalogue import (
    CUSTOM,
    CUSTOM_PREFIX,
    OWN_OPTIONS,
    extension_options,
    find_option,
    nearest_key,
    nearest_of,
)
from kinesis_publishers.config.option import PREFIXES, Entry, Lookup, Option
from kinesis_publishers.config.parsers import Duration, Scalar
from kinesis_publishers.config.sections.aws import CredentialsConfig, nested_option
from kinesis_publishers.config.sections.checkpoints import CheckpointConfig
from kinesis_publishers.config.sections.positions import (
    SECTIONS_BY_POSITION,
    EndingPositionConfig,
    InitialPositionConfig,
    parts_of_position,
)
from kinesis_publishers.config.sections.producing import RANDOM, ProducerConfig
from kinesis_publishers.config.sections.reading import WatermarkConfig
from kinesis_publishers.config.sections.registration import RegistrationConfig
from kinesis_publishers.config.sections.source import (
    SourceConfig,
    StreamsConfig,
    built_in_publisher,
)
from kinesis_publishers.errors import (
    ConfigError,
    InvalidOptionError,
    PluginLoadError,
    UnknownOptionError,
)

# The credentials that assume a role may come from another role, and so on.
_DEEPEST_PROVIDER: Final = 4


@frozen
class Assignment:
    """One value for one option, with key and value as the user wrote them."""

    option: Option[Any]
    written_key: str
    value: Scalar = field(repr=False)  # it may be a secret

    def entry(self) -> Entry:
        return Entry(
            value=self.option.parse(self.value, written_key=self.written_key),
            raw=self.value,
            written_key=self.written_key,
            full_key=self.option.full_key,
            secret=self.option.secret,
        )


@define
class Assignments:
    """The values from one source of properties, with the problems of its keys."""

    found: list[Assignment] = Factory(list)
    problems: list[ConfigError] = Factory(list)

    def add(self, option: Option[Any], written_key: str, value: Scalar) -> None:
        section = SECTIONS_BY_POSITION.get(option.key)
        parts = parts_of_position(section, value) if section else [(option, value)]
        self.found += [Assignment(one, written_key, part) for one, part in parts]

    def add_moved(self, key: str, advice: str) -> None:
        """Report that ``key`` is an option of another connector, with the alternative."""
        self.problems.append(UnknownOptionError(f"{key}: not an option of this source; {advice}"))

    def add_unknown(self, key: str, nearest: str | None, instead: str = "") -> None:
        """Report that ``key`` is unknown, with the ``nearest`` known one, if any, or ``instead``.

        The report does not have the value, which may be a secret.
        """
        hint = f"did you mean {nearest}?" if nearest else instead or "no known option is similar"
        self.problems.append(UnknownOptionError(f"{key}: unknown option; {hint}"))


def assign_properties(pairs: Iterable[tuple[Any, Scalar]]) -> Assignments:
    """Resolve the keys of properties; a key may have several values."""
    assignments = Assignments()
    for key, value in pairs:
        if not isinstance(key, str):
            assignments.problems.append(InvalidOptionError(f"{key!r}: a key must be a string"))
        elif option := find_option(key):
            assignments.add(option, key, value)
        else:
            assignments.add_unknown(key, nearest_key(key))
    return assignments


SHORT_NAMES: Final[Mapping[str, Option[Any]]] = {
    "stream": StreamsConfig.names,
    "start": InitialPositionConfig.position,
    "end": EndingPositionConfig.position,
    "application": CheckpointConfig.application,
    "publisher": SourceConfig.record_publisher,
    "consumer_name": RegistrationConfig.consumer_name,
}
"""The options with a short name, by that name."""


def keyword_of(option: Option[Any]) -> str:
    """Return the key without its prefix, with ``_`` for ``.`` and ``-``, in lower case."""
    words = re.sub("([a-z])([A-Z])", r"\1_\2", option.key.removeprefix("aws."))
    return re.sub("[.-]", "_", words).lower()


KEYWORDS: Final[Mapping[str, Option[Any]]] = {
    **SHORT_NAMES,
    **{keyword_of(one): one for one in OWN_OPTIONS},
}
"""What each keyword means; the options of Spark alone have none."""


def assign_keywords(keywords: Mapping[str, object]) -> Assignments:
    """Resolve keyword arguments; ``None`` is the same as leaving one out."""
    assignments = Assignments()
    for name, value in keywords.items():
        option = KEYWORDS.get(name)
        if option is None and name in map(keyword_of, extension_options()):
            assignments.problems.append(
                UnknownOptionError(f"{name}: only Spark has this option; leave it out here")
            )
        elif option is None:
            assignments.add_unknown(name, nearest_of(name, {one: one for one in KEYWORDS}, "_"))
        elif value is not None:
            try:
                assignments.add(option, name, _scalar_of(name, option, value))
            except InvalidOptionError as error:
                assignments.problems.append(error)
    return assignments


def replaced_by(keywords: Mapping[str, object]) -> frozenset[str]:
    """Return the keys of the options whose former values ``keywords`` replace."""
    given = {name for name, value in keywords.items() if value is not None}
    options = [KEYWORDS[name] for name in given & KEYWORDS.keys()]
    for option in tuple(options):
        # Several options together make one position.
        if section := SECTIONS_BY_POSITION.get(option.key):
            options += section.options()
    return frozenset(option.key for option in options)


def _scalar_of(name: str, option: Option[Any], value: object) -> Scalar:
    """Return ``value`` in a form for a properties dict; unsupported types are refused later."""
    if isinstance(value, Enum):
        value = value.value
    elif isinstance(value, type):
        value = f"{value.__module__}:{value.__qualname__}"
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, timedelta) and isinstance(option.parser, Duration):
        value /= timedelta(milliseconds=1) if option.unit == "ms" else timedelta(seconds=1)
    elif isinstance(value, timedelta) and option.key in SECTIONS_BY_POSITION:
        value = f"{-value.total_seconds()}s"
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOptionError(
                f"{name}: {value!r} has no time zone: add one, as in datetime(..., tzinfo=UTC)"
            )
        value = value.isoformat()
    elif isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    return value  # type: ignore[return-value]


def assign_custom(
    unread: Mapping[str, Entry], options: Sequence[Option[Any]], lookup: Lookup
) -> Assignments:
    """Resolve custom keys, still unread, with the declarations of the class that reads them."""
    for option in options:
        if not option.key.startswith(CUSTOM_PREFIX):
            name = option.key.removeprefix(PREFIXES[0]).removeprefix(CUSTOM_PREFIX)
            raise PluginLoadError(
                f"The option {option.full_key!r} is not one of a custom class: declare it with "
                f"Option(key={CUSTOM_PREFIX + name!r}, ...)"
            )
    assignments = Assignments()
    known = {option.key.lower(): option for option in options}
    for key, entry in unread.items():
        if key.lower() in known:
            assignments.add(known[key.lower()], entry.written_key, entry.raw)
        elif not has_other_reader(lookup):
            # All keys have a long beginning in common: endings are similar only at a high cutoff.
            near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.85)
            listed = ", ".join(option.full_key for option in options) or "none"
            nearest = known[near[0]].full_key if near else None
            assignments.add_unknown(entry.written_key, nearest, f"the publisher knows {listed}")
    found = {assignment.option.key for assignment in assignments.found}
    missing = (one.missing() for one in options if one.required and one.key not in found)
    assignments.problems += missing
    return assignments


def unread_custom_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield the custom keys that nothing reads, because the publisher is a built-in one."""
    publisher = built_in_publisher(lookup)
    if publisher is None or has_other_reader(lookup):
        return
    for key in lookup.members(CUSTOM):
        yield InvalidOptionError(
            f"{lookup.written_key(CUSTOM.of(key))} is an option of a class of your own, but "
            f"{SourceConfig.record_publisher.full_key} is {publisher.name}, which does not read "
            f"it: name your publisher (or {ProducerConfig.partitioner.full_key}, or "
            f"{WatermarkConfig.assigner.full_key}), or remove the key"
        )


def has_other_reader(lookup: Lookup) -> bool:
    """Return whether a class of the user's other than a publisher receives every key as written."""
    if lookup.get(ProducerConfig.partitioner) != RANDOM or lookup.is_given(
        WatermarkConfig.assigner
    ):
        return True
    option = CredentialsConfig.custom_class
    depths = range(_DEEPEST_PROVIDER)
    return any(lookup.is_given(nested_option(option, depth)) for depth in depths)
