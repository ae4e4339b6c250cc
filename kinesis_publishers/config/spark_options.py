"""From the options of a Spark source to options.

Accepted are the keys of the properties dict, bare or with their prefix, and the names that other
connectors use, so that their users change one line.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.config.assignments import Assignments
from kinesis_publishers.config.catalogue import find_bare_option, find_option
from kinesis_publishers.config.sections.aws import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
)
from kinesis_publishers.config.sections.checkpoints import CHECKPOINT_OPTIONS
from kinesis_publishers.config.spark_aliases import (
    ALIASES,
    NO_SIDE_STORE,
    REGION_IN_ENDPOINT,
    advice_for,
    assignments_of,
)
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["ALLOW_VARIABLE", "assign_spark_options"]

ALLOW_VARIABLE: Final = "KINESIS_PUBLISHERS_ALLOW"
"""The environment variable of the driver that permits values, separated by commas."""

# What Spark itself puts among the options of a source.
_SPARK_INTERNAL: Final = frozenset({"path", "paths", "__paths__"})
# The namespaces of awslabs' connector, and of Qubole's after it.
_FOREIGN_PREFIXES: Final = ("kinesis.", "executor.", "client.")
_BY_LOWER_NAME: Final = MappingProxyType({name.lower(): option for name, option in ALIASES.items()})


def assign_spark_options(
    options: Mapping[str, Scalar], *, allow: Collection[str] = ()
) -> Assignments:
    """Resolve the options of a Spark source, whose keys Spark has lower-cased.

    Args:
        options: the options.
        allow: shell patterns of the guarded values that the operator permits.

    Raises:
        ConfigErrors: guarded values are not permitted; nothing was loaded.
    """
    assignments = Assignments()
    for key, value in options.items():
        if key.lower() not in _SPARK_INTERNAL:
            _assign(assignments, key, value)
    _assume_role_by_default(assignments)
    _take_region_from_endpoint(assignments)
    # Before any rule looks at the values, because some of them load what is named.
    if refused := list(_refused(assignments, allow)):
        raise ConfigErrors(refused)
    return assignments


def _refused(assignments: Assignments, allow: Collection[str]) -> Iterator[ConfigError]:
    for one in assignments.found:
        for part in str(one.value).split(","):
            value, guarded = part.strip(), one.option.guarded
            # Not "..", which leads out of the directory of a pattern.
            is_allowed = ".." not in value and any(fnmatchcase(value, each) for each in allow)
            if guarded is not None and re.search(guarded, value) and not is_allowed:
                yield InvalidOptionError(
                    f"{one.written_key}: {value} has the driver load code, or use a file or token "
                    "of its own, which an option of Spark may do only where that is permitted: "
                    f"add {value!r} or a pattern such as 'mine.*' to {ALLOW_VARIABLE} in the "
                    "driver's environment, or to register(spark, allow=[...])"
                )


def _assign(assignments: Assignments, key: str, value: Scalar) -> None:
    foreign = _without_prefixes(key.lower())
    alias = _BY_LOWER_NAME.get(foreign)
    option = find_option(key) or find_bare_option(key)
    if alias is not None:
        for target, part in assignments_of(alias, value):
            assignments.add(target, key, part)
    elif option in CHECKPOINT_OPTIONS:
        assignments.add_moved(key, NO_SIDE_STORE)
    elif option is not None:
        assignments.add(option, key, value)
    elif (advice := advice_for(foreign)) is not None:
        assignments.add_moved(key, advice)
    else:
        assignments.add_unknown(key, more=tuple(ALIASES))


def _without_prefixes(key: str) -> str:
    for prefix in _FOREIGN_PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _assume_role_by_default(assignments: Assignments) -> None:
    """Let ``roleArn`` mean what it means elsewhere: assume that role."""
    provider = CredentialsConfig.provider_option
    written_key = _alias_written_for(assignments, CredentialsConfig.role_arn)
    if written_key is not None and not _is_given(assignments, provider):
        assignments.add(provider, written_key, CredentialsProvider.ASSUME_ROLE.value)


def _take_region_from_endpoint(assignments: Assignments) -> None:
    """Let ``endpointUrl`` mean what it means elsewhere: the region is the one in AWS's own URL."""
    if _is_given(assignments, AwsConfig.region):
        return
    for found in tuple(assignments.found):
        if found.option is AwsConfig.endpoint_url:
            match = re.fullmatch(REGION_IN_ENDPOINT, str(found.value).strip())
            if match is not None:
                assignments.add(AwsConfig.region, found.written_key, match["region"].lower())


def _is_given(assignments: Assignments, option: Option[Any]) -> bool:
    return any(found.option.key == option.key for found in assignments.found)


def _alias_written_for(assignments: Assignments, option: Option[Any]) -> str | None:
    written = (found.written_key for found in assignments.found if found.option is option)
    return next((key for key in written if _without_prefixes(key.lower()) in _BY_LOWER_NAME), None)
