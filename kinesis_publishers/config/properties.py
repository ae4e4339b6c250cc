"""The parsed configuration: one immutable mapping for every source of properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from kinesis_publishers.config.assignments import (
    Assignments,
    assign_custom,
    assign_keywords,
    assign_properties,
    replaced_by,
)
from kinesis_publishers.config.catalogue import CUSTOM_PREFIX, OWN_OPTIONS
from kinesis_publishers.config.option import Entry, Lookup, Option
from kinesis_publishers.config.parsers import Scalar
from kinesis_publishers.config.rules import find_problems
from kinesis_publishers.config.sections.source import StreamsConfig
from kinesis_publishers.errors import (
    ConfigError,
    ConfigErrors,
    InvalidOptionError,
    MissingOptionError,
)


@frozen(repr=False, unsafe_hash=False)
class Properties(Lookup):
    """The user's configuration, checked as a whole.

    Two are equal if they mean the same. They can be pickled for other processes. The ``repr`` masks
    secrets.
    """

    @classmethod
    def parse(cls, values: Mapping[str, Scalar], *, complete: bool = True) -> Properties:
        """Parse a properties dict with the keys ``kinesis.X``, ``flink.X`` and ``aws.X``.

        Values are texts, or have their type already. ``complete=False`` accepts properties without
        the required options (the streams), for code that does not need them.

        Raises:
            ConfigErrors: lists every unknown key, bad value, missing option and contradiction.
        """
        return cls.from_pairs(values.items(), complete=complete)

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[str, Scalar]], *, complete: bool = True
    ) -> Properties:
        """Parse keys with their values; see :meth:`parse`. A key must not have two values."""
        return cls.from_assignments(assign_properties(pairs), complete=complete)

    @classmethod
    def of(
        cls,
        properties: Properties | Mapping[str, Scalar] | None,
        options: Mapping[str, object],
        *,
        complete: bool = True,
    ) -> Properties:
        """Return ``properties`` with the keywords ``options``, which take precedence.

        :class:`~kinesis_publishers.Options` has the keywords. Raises as :meth:`parse` does.
        """
        keys, assignments = replaced_by(options), assign_keywords(options)
        others: Mapping[str, Entry] = {}
        if isinstance(properties, Properties):
            if not options:
                return properties
            others = {key: one for key, one in properties._entries.items() if key not in keys}
        else:
            written = assign_properties((properties or {}).items())
            kept = [one for one in written.found if one.option.key not in keys]
            assignments.found = kept + assignments.found
            assignments.problems = written.problems + assignments.problems
        name = "stream" if properties is None else None
        return cls.from_assignments(assignments, stream=name, others=others, complete=complete)

    @classmethod
    def from_file(cls, path: str | Path, *, complete: bool = True) -> Properties:
        """Read a Java ``.properties`` file; see :meth:`parse`. It may raise ``OSError``, too."""
        return cls.from_text(Path(path).read_bytes(), name=str(path), complete=complete)

    @classmethod
    def from_text(cls, content: str | bytes, *, name: str, complete: bool = True) -> Properties:
        """Parse the content of a Java ``.properties`` file; see :meth:`from_pairs`.

        ``content`` is text, or bytes in Latin-1, the encoding of the format. Messages call its
        source ``name``.
        """
        return cls.from_pairs(pairs_in(content, name=name), complete=complete)

    @classmethod
    def from_assignments(
        cls,
        assignments: Assignments,
        *,
        complete: bool = True,
        stream: str | None = None,
        others: Mapping[str, Entry] | None = None,
    ) -> Properties:
        """Parse values of known options, in addition to ``others``; see :meth:`parse`.

        A message calls the option that names the streams ``stream``.
        """
        streams = StreamsConfig.names
        if complete and stream and all(one.option is not streams for one in assignments.found):
            complete, key = False, streams.full_key
            text = str(streams.missing()).replace(key, f"{stream} ({key})")
            assignments.problems.append(MissingOptionError(text))
        entries, refused, problems = _read(assignments, others or {})
        problems += find_problems(Lookup(entries, refused), complete=complete)
        if problems:
            raise ConfigErrors(problems)
        return cls(entries)

    def custom(self, *options: Option[Any]) -> Properties:
        """Return the same properties with the keys ``kinesis.custom.*`` read as ``options``.

        For a publisher of your own: until then, such keys have no type and are masked. The key of
        every option begins with ``custom.``.

        Raises:
            ConfigErrors: lists every unknown key, bad value and missing option.
        """
        unread = {key: one for key, one in self._entries.items() if key.startswith(CUSTOM_PREFIX)}
        others = {key: one for key, one in self._entries.items() if key not in unread}
        entries, _, problems = _read(assign_custom(unread, options, self), others)
        if problems:
            raise ConfigErrors(problems)
        return Properties(entries)

    def with_values(self, values: Mapping[Option[Any], Scalar | None]) -> Properties:
        """Return the same properties with other values of some options; ``None`` leaves one out.

        Incomplete properties may still lack required options. Raises as :meth:`parse` does.
        """
        changes = Assignments()
        for option, value in values.items():
            if value is not None:
                changes.add(option, self.written_key(option), value)
        keys = {option.key for option in values}
        others = {key: one for key, one in self._entries.items() if key not in keys}
        is_complete = all(self.is_given(option) for option in OWN_OPTIONS if option.required)
        return self.from_assignments(changes, others=others, complete=is_complete)

    def part(self, *, secret: bool) -> Properties:
        """Return the options whose values are secret, or all others."""
        return Properties({key: one for key, one in self._entries.items() if one.secret is secret})

    def __or__(self, other: Properties) -> Properties:
        return Properties({**self._entries, **other._entries})

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.values()))

    def __repr__(self) -> str:
        pairs = ", ".join(f"{entry.full_key}={entry.shown}" for entry in self._entries.values())
        return f"Properties({pairs})"


def pairs_in(content: str | bytes, *, name: str) -> list[tuple[str, str]]:
    """Return the keys of a Java ``.properties`` file with their values; see ``from_text``."""
    import javaproperties

    try:
        pairs: list[tuple[str, str]] = javaproperties.loads(content, object_pairs_hook=list)
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigErrors([InvalidOptionError(f"{name}: {error}")]) from None
    return pairs


def _read(
    assignments: Assignments, others: Mapping[str, Entry]
) -> tuple[dict[str, Entry], frozenset[str], list[ConfigError]]:
    """Return ``others`` with the parsed values, the refused keys, and the problems."""
    entries = dict(others)
    refused: set[str] = set()
    problems = list(assignments.problems)
    for assignment in assignments.found:
        try:
            entry = assignment.entry()
            earlier = entries.setdefault(assignment.option.key, entry)
            if earlier != entry:
                raise InvalidOptionError(
                    f"{entry.written_key} is given twice, as {earlier.shown} and {entry.shown}: "
                    "keep one"
                    if earlier.written_key == entry.written_key
                    else f"{earlier.written_key} ({earlier.shown}) and {entry.written_key} "
                    f"({entry.shown}) mean the same option and differ: keep one"
                )
        except ConfigError as error:
            refused.add(assignment.option.key)
            problems.append(error)
    return entries, frozenset(refused), problems
