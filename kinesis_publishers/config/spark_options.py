"""From the options of a Spark source to options.

Accepted are the keys of the properties dict, bare or with their prefix, and the names that other
connectors use, so that a user of theirs changes one line.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from kinesis_publishers.config.assignments import Assignments
from kinesis_publishers.config.catalogue import find_bare_option, find_option
from kinesis_publishers.config.choices import CredentialsProvider, InitialPosition
from kinesis_publishers.config.options import aws, publisher, registration, spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["ALIASES", "assign_spark_options"]

# What Spark itself puts among the options of a source.
_SPARK_INTERNAL: Final = frozenset({"path", "paths", "__paths__"})

ALIASES: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        "streamName": publisher.STREAMS,
        "streamARN": publisher.STREAMS,
        "region": aws.REGION,
        "endpointUrl": aws.ENDPOINT,
        "consumerType": publisher.RECORD_PUBLISHER,
        "consumerMode": publisher.RECORD_PUBLISHER,
        "consumerName": registration.CONSUMER_NAME,
        "startingPosition": publisher.INITIAL_POSITION,
        "initialPosition": publisher.INITIAL_POSITION,
        "failOnDataLoss": publisher.FAIL_ON_DATA_LOSS,
        "maxRecordsPerTrigger": spark.MAX_RECORDS_PER_TRIGGER,
        "maxBytesPerTrigger": spark.MAX_BYTES_PER_TRIGGER,
        "roleArn": aws.ROLE_ARN,
        "roleExternalId": aws.ROLE_EXTERNAL_ID,
        "roleSessionName": aws.ROLE_SESSION_NAME,
    }
)
"""The option that each name of another connector stands for."""

_BY_LOWER_NAME: Final = MappingProxyType({name.lower(): option for name, option in ALIASES.items()})
_CONSUMER_TYPES: Final = MappingProxyType({"getrecords": "POLLING", "subscribetoshard": "EFO"})


def assign_spark_options(options: Mapping[str, Scalar]) -> Assignments:
    """Resolve the options of a Spark source, whose keys Spark has lower-cased."""
    assignments = Assignments()
    for key, value in options.items():
        lowered = key.lower()
        if lowered in _SPARK_INTERNAL:
            continue
        alias = _BY_LOWER_NAME.get(lowered.removeprefix("kinesis."))
        option = find_option(key) or find_bare_option(key)
        if alias is not None:
            _assign_alias(assignments, alias, key, value)
        elif option is not None:
            assignments.add(option, key, value)
        else:
            assignments.add_unknown(key, more=tuple(ALIASES))
    _assume_role_by_default(assignments)
    return assignments


def _assign_alias(assignments: Assignments, option: Option[Any], key: str, value: Scalar) -> None:
    text = value.strip() if isinstance(value, str) else ""
    if option is publisher.RECORD_PUBLISHER:
        assignments.add(option, key, _CONSUMER_TYPES.get(text.lower(), value))
    elif option is publisher.INITIAL_POSITION:
        for target, part in _split_position(text or value):
            assignments.add(target, key, part)
    else:
        assignments.add(option, key, value)


def _split_position(value: Scalar) -> list[tuple[Option[Any], Scalar]]:
    """Return what ``startingPosition`` says: a name, AT_TIMESTAMP with a date, or JSON."""
    position, timestamp = publisher.INITIAL_POSITION, publisher.INITIAL_TIMESTAMP
    text = str(value)
    if text.startswith("{"):
        return _split_json_position(text)
    name, _, instant = text.partition(" ")
    if name.upper() == "EARLIEST":
        return [(position, InitialPosition.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(position, name), (timestamp, instant.strip())]
    return [(position, value)]


def _split_json_position(text: str) -> list[tuple[Option[Any], Scalar]]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or "at_timestamp" not in document:
        return [(publisher.INITIAL_SHARD_POSITIONS, text)]
    parts: list[tuple[Option[Any], Scalar]] = [
        (publisher.INITIAL_POSITION, InitialPosition.AT_TIMESTAMP.value),
        (publisher.INITIAL_TIMESTAMP, document["at_timestamp"]),
    ]
    if "format" in document:
        parts.append((publisher.INITIAL_TIMESTAMP_FORMAT, document["format"]))
    return parts


def _assume_role_by_default(assignments: Assignments) -> None:
    """Let ``roleArn`` mean what it means elsewhere: assume that role."""
    given = {found.option.key for found in assignments.found}
    for found in assignments.found:
        if found.option is aws.ROLE_ARN and found.written_key.lower().endswith("rolearn"):
            if aws.PROVIDER.key not in given:
                role = CredentialsProvider.ASSUME_ROLE.value
                assignments.add(aws.PROVIDER, found.written_key, role)
            return
