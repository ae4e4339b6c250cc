"""Finds the declaration of a key as the user wrote it, or the key that was probably meant."""

from __future__ import annotations

import difflib
import re
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve

from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.options import (
    ALL_FAMILIES,
    ALL_OPTIONS,
    all_declarations,
    aws,
    custom,
)

__all__ = ["find_option", "find_bare_option", "nearest_key", "nested_option"]

_PREFIXES: Final = ("kinesis.", "flink.")
_BY_KEY: Final = MappingProxyType(
    {
        spelling.lower(): option
        for option in ALL_OPTIONS
        for spelling in (option.key, *option.spellings)
    }
)
_NESTABLE: Final = frozenset(option.key for option in aws.NESTABLE)
_NESTED: Final = re.compile(
    r"aws\.credentials\.provider((?:\.role\.provider)+)(\..+)", re.IGNORECASE
)


def nested_option(option: Option[Any], depth: int) -> Option[Any]:
    """Return the credentials ``option`` as it applies ``depth`` role providers further in."""
    deeper = aws.CREDENTIALS_PREFIX + ".role.provider" * depth
    return evolve(option, key=option.key.replace(aws.CREDENTIALS_PREFIX, deeper, 1))


def find_bare_option(key: str) -> Option[Any] | None:
    """Return the option whose key without a prefix is ``key``, whatever its case."""
    option = _BY_KEY.get(key.lower())
    if option is not None:
        return option
    for family in ALL_FAMILIES:
        name = family.name_in(key)
        if name is not None:
            return family.of(name)
    return _find_nested(key)


def find_option(key: str) -> Option[Any] | None:
    """Return the option for ``key`` as it stands in a properties dict, with its prefix."""
    lowered = key.lower()
    for prefix in _PREFIXES:
        if lowered.startswith(prefix):
            option = find_bare_option(key[len(prefix) :])
            return option if option and prefix in option.namespace.value else None
    option = find_bare_option(key)
    return option if option and option.namespace is Namespace.AWS else None


def nearest_key(key: str, *, more: tuple[str, ...] = ()) -> str | None:
    """Return the known key that is most like ``key``, None if nothing is.

    Args:
        key: the unknown key.
        more: keys that are accepted beside those of the declarations.
    """
    bare = find_bare_option(_without_prefix(key))
    if bare is not None:
        return bare.full_key
    candidates = _known_keys(key) | {name.lower(): name for name in more}
    matches = difflib.get_close_matches(key.lower(), candidates, n=3, cutoff=0.6)
    # The prefix alone, which most keys have, makes none of them near.
    near = (one for one in matches if _likeness(key, one) >= 0.5)
    return next((candidates[one] for one in near), None)


def _likeness(key: str, other: str) -> float:
    first, second = _without_prefix(key).lower(), _without_prefix(other).lower()
    return difflib.SequenceMatcher(None, first, second).ratio()


def _find_nested(key: str) -> Option[Any] | None:
    match = _NESTED.fullmatch(key)
    if match is None:
        return None
    option = _BY_KEY.get(f"{aws.CREDENTIALS_PREFIX}{match[2]}".lower())
    if option is None or option.key not in _NESTABLE:
        return None
    return nested_option(option, match[1].lower().count(".role.provider"))


def _without_prefix(key: str) -> str:
    for prefix in _PREFIXES:
        if key.lower().startswith(prefix):
            return key[len(prefix) :]
    return key


def _is_custom(key: str) -> bool:
    return _without_prefix(key).lower().startswith(custom.PREFIX)


def _known_keys(key: str) -> dict[str, str]:
    """Return what ``key`` is compared with, in lower case, and the key that is then suggested."""
    is_flink = key.lower().startswith("flink.")
    candidates: dict[str, str] = {}
    for option in all_declarations():
        shared = option.namespace is Namespace.SHARED
        suggested = f"flink.{option.key}" if is_flink and shared else option.full_key
        # The name of a stream in the key must not make another option look nearer.
        before, bracket, _ = suggested.partition("<")
        if bracket and option.key.startswith(custom.PREFIX) and not _is_custom(key):
            # With any name at all it would be the nearest one of every key.
            continue
        name = key.split(".", before.count("."))[-1] if bracket else ""
        candidates[f"{before}{name}".lower()] = suggested
    return candidates
