"""Finds the declaration of a key as the user wrote it, or suggests a similar key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from attrs import evolve

from kinesis_publishers.config.option import PREFIXES, Option, OptionFamily, Section
from kinesis_publishers.config.parsers import Parsed, Scalar
from kinesis_publishers.config.retries import OUTAGE, RECOVERABLE_ERRORS
from kinesis_publishers.config.sections import (
    aws,
    checkpoints,
    metrics,
    positions,
    producing,
    reading,
    registration,
    source,
)

# Strings, not imports: these packages are built on this one. Each module has sections, and RULES.
_EXTENSIONS: Final = ("kinesis_publishers_spark.options",)


def _sections_in(*modules: ModuleType) -> tuple[type[Section], ...]:
    """Return the sections that ``modules`` declare, in their order."""
    return tuple(
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Section) and one.__module__ == module.__name__
    )


# In the order of the reference, in which extensions come between the two groups.
_READING: Final = _sections_in(source, positions, aws, reading, registration, metrics)
_OTHERS: Final = _sections_in(checkpoints, producing)
CUSTOM_PREFIX: Final = "custom."


CUSTOM: Final[OptionFamily[Scalar | None]] = OptionFamily(
    member=Option(
        key=f"{CUSTOM_PREFIX}<key>",
        parser=Parsed("what the class that reads the key accepts", lambda value: value),
        section="Custom classes",
        doc="An option of a class of your own, such as a record publisher. That class declares "
        "and checks it.",
        # Only the class that reads it knows whether it is a secret.
        secret=True,
    ),
    placeholder="<key>",
    name_pattern=r"[a-zA-Z0-9_.-]{1,128}",
)
"""Keys of classes outside this package, which passes them on unread."""

_DECLARED: Final = [one for each in (*_READING, *_OTHERS) for one in each.declarations.values()]
_FAMILIES: Final = (
    *(one for one in _DECLARED if isinstance(one, OptionFamily)),
    RECOVERABLE_ERRORS,
    CUSTOM,
)
_NESTED: Final = r"(?i)aws\.credentials\.provider((?:\.role\.provider)+)(\..+)"


def _options_in(*sections: type[Section]) -> tuple[Option[Any], ...]:
    declared = (one for section in sections for one in section.declarations.values())
    singles = (one for one in declared if not isinstance(one, OptionFamily))
    return (*(option for one in singles for option in one.options), OUTAGE)


OWN_OPTIONS: Final = _options_in(*_READING, *_OTHERS)
"""The options of the framework: every one that is not of a family, and not of an extension."""


@cache
def extensions() -> tuple[Any, ...]:
    found = (name for name in _EXTENSIONS if find_spec(name.partition(".")[0]))
    return tuple(map(import_module, found))


@cache
def all_sections() -> tuple[type[Section], ...]:
    return (*_READING, *_sections_in(*extensions()), *_OTHERS)


@cache
def all_options() -> tuple[Option[Any], ...]:
    """Return every option that is not of a family, those of the extensions included."""
    return _options_in(*all_sections())


@cache
def extension_options() -> tuple[Option[Any], ...]:
    return tuple(option for option in all_options() if option not in OWN_OPTIONS)


def all_declarations() -> tuple[Option[Any], ...]:
    """Return every option, and one member of each family, by the section of the reference."""
    options = [
        evolve(option, section=option.section or section.title)
        for section in all_sections()
        for option in section.options()
    ]
    options += (OUTAGE, RECOVERABLE_ERRORS.member, CUSTOM.member)
    titles = [section.title for section in all_sections()] + [one.section for one in options]
    return tuple(sorted(options, key=lambda option: titles.index(option.section)))


@cache
def _options_by_key() -> Mapping[str, Option[Any]]:
    spelled = ((one, (one.key, *one.spellings)) for one in all_options())
    return {spelling.lower(): one for one, spellings in spelled for spelling in spellings}


def find_bare_option(key: str) -> Option[Any] | None:
    """Return the option with this ``key`` without a prefix; upper and lower case are the same."""
    option = _options_by_key().get(key.lower())
    if option is not None:
        return option
    for family in _FAMILIES:
        name = family.name_in(key)
        if name is not None:
            return family.of(name)
    return _find_nested(key)


def find_option(key: str) -> Option[Any] | None:
    """Return the option for ``key`` as it stands in a properties dict, with its prefix."""
    bare = _without_prefix(key)
    option = find_bare_option(bare)
    has_prefix = bare != key
    return option if option and has_prefix == (option.full_key != option.key) else None


def nearest_key(key: str, *, more: tuple[str, ...] = ()) -> str | None:
    """Return the known key, or the one of ``more``, that is most similar to ``key``, if any."""
    # The prefix does not count: most keys have it.
    bare = _without_prefix(key)
    if known := find_bare_option(bare):
        return known.full_key
    candidates = _known_keys(bare.lower()) | {name.lower(): name for name in more}
    found = nearest_of(bare, candidates)
    is_flink = key.lower().startswith("flink.")
    return found.replace(*PREFIXES) if found and is_flink else found


def nearest_of(key: str, candidates: Mapping[str, str], separator: str = ".") -> str | None:
    """Return what ends like ``key``, as people remember it, or is most similar to it, if any.

    ``candidates`` are suggestions by what they are compared by.
    """
    by_ending: dict[str, list[str]] = {}
    for name in dict.fromkeys(candidates.values()):
        parts = name.lower().split(separator)
        for start in range(1, len(parts)):
            by_ending.setdefault(separator.join(parts[start:]), []).append(name)
    by_ending |= {one: [name] for one, name in candidates.items()}
    for written in (key.lower(), key.lower().rpartition(separator)[2]):
        if near := difflib.get_close_matches(written, by_ending, n=1, cutoff=0.8):
            return " or ".join(by_ending[near[0]][:3])
    return next(map(candidates.get, difflib.get_close_matches(key.lower(), candidates, n=1)), None)


def _find_nested(key: str) -> Option[Any] | None:
    match = re.fullmatch(_NESTED, key)
    if match is None:
        return None
    option = _options_by_key().get(f"{aws.CREDENTIALS_PREFIX}{match[2]}".lower())
    depth = match[1].lower().count(".role.provider")
    return option and aws.nested_option(option, depth)


def _without_prefix(key: str) -> str:
    for prefix in PREFIXES:
        if key.lower().startswith(prefix):
            return key[len(prefix) :]
    return key


def _known_keys(key: str) -> dict[str, str]:
    """Return the lower-case keys to compare ``key`` with, and the suggestion for each."""
    candidates = {option.key.lower(): option.full_key for option in all_declarations()}
    for family in _FAMILIES:
        # The name of a stream in the key must not make another option look more similar.
        before, _, _ = family.member.key.partition(f".{family.placeholder}")
        *words, name = key.split(".", before.count(".") + 1)
        if difflib.get_close_matches(".".join(words), [before], cutoff=0.9):
            candidates[f"{before}.{name}"] = family.member.full_key
    return candidates
