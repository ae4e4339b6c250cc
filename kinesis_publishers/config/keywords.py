"""Resolves keyword arguments to options:

Python programs may use them in place of a properties dict.

The keyword of an option is its key without ``kinesis.`` or ``aws.``, with ``_`` for ``.`` and
``-``. The most common options also have a short name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from kinesis_publishers.config.assignments import Assignments
from kinesis_publishers.config.catalogue import OWN_OPTIONS, extension_options
from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import Duration, Scalar
from kinesis_publishers.config.sections.checkpoints import CheckpointConfig
from kinesis_publishers.config.sections.positions import (
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
    parts_of_position,
)
from kinesis_publishers.config.sections.registration import RegistrationConfig
from kinesis_publishers.config.sections.source import SourceConfig, StreamsConfig
from kinesis_publishers.errors import InvalidOptionError, UnknownOptionError

SHORT_NAMES: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        "stream": StreamsConfig.names,
        "start": InitialPositionConfig.position,
        "application": CheckpointConfig.application,
        "publisher": SourceConfig.record_publisher,
        "consumer_name": RegistrationConfig.consumer_name,
    }
)
"""The options with a short name, by that name."""


def keyword_of(option: Option[Any]) -> str:
    """Return the long keyword of ``option``."""
    words = re.sub("([a-z])([A-Z])", r"\1_\2", option.key.removeprefix("aws."))
    return re.sub("[.-]", "_", words).lower()


# A Python program ends where it likes.
_ENDS: Final = EndingPositionConfig.options()
KEYWORDS: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {**SHORT_NAMES, **{keyword_of(one): one for one in OWN_OPTIONS if one not in _ENDS}}
)
"""What each keyword means; the options of Spark alone have none."""


def assign_keywords(keywords: Mapping[str, object]) -> Assignments:
    """Resolve keyword arguments; ``None`` is the same as leaving one out."""
    assignments = Assignments()
    for name, value in keywords.items():
        option = KEYWORDS.get(name)
        if option is None and name in _keywords_of_spark():
            assignments.problems.append(
                UnknownOptionError(f"{name}: only Spark has this option; leave it out here")
            )
        elif option is None:
            assignments.add_unknown(name, instead=KEYWORDS)
        elif value is not None:
            try:
                parts = _parts_of(name, option, value)
            except InvalidOptionError as error:
                assignments.problems.append(error)
                continue
            for target, part in parts:
                assignments.add(target, name, part)
    return assignments


@cache
def _keywords_of_spark() -> frozenset[str]:
    return frozenset({"end", *map(keyword_of, (*_ENDS, *extension_options()))})


def replaced_by(keywords: Mapping[str, object]) -> frozenset[str]:
    """Return the keys of the options whose former values ``keywords`` replace."""
    given = {name for name, value in keywords.items() if value is not None}
    options = [KEYWORDS[name] for name in given & KEYWORDS.keys()]
    if "start" in given:
        # Several options together make one position.
        options += InitialPositionConfig.options()
    return frozenset(option.key for option in options)


def _parts_of(
    name: str, option: Option[Any], value: object
) -> Iterable[tuple[Option[Any], Scalar]]:
    scalar = _scalar_of(name, option, value)
    if name != "start":
        return [(option, scalar)]
    parts = parts_of_position(InitialPositionConfig, scalar)
    names = {one.value for one in InitialPosition}
    if parts == [(option, scalar)] and str(scalar).strip().upper() not in names:
        raise InvalidOptionError(
            f"start: got {scalar!r}, expected LATEST, TRIM_HORIZON, or a time: an aware datetime "
            "such as datetime.now(UTC) - timedelta(hours=1), or a string such as "
            "'2026-11-26T10:00:00Z'"
        )
    return parts


def _scalar_of(name: str, option: Option[Any], value: object) -> Scalar:
    """Return ``value`` in a form for a properties dict; unsupported types are refused later."""
    if isinstance(value, Enum):
        value = value.value
    elif isinstance(value, type):
        value = f"{value.__module__}:{value.__qualname__}"
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, timedelta) and isinstance(option.parser, Duration):
        value = value / timedelta(**{_ARGUMENTS[option.parser.unit]: 1})
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOptionError(
                f"{name}: {value!r} has no time zone: add one, as in datetime(..., tzinfo=UTC)"
            )
        value = value.isoformat()
    elif isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    return value  # type: ignore[return-value]


_ARGUMENTS: Final = {"ms": "milliseconds", "s": "seconds"}
