"""Finds what was configured in vain: keys that are valid and that nothing will read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from kinesis_publishers.config.instants import BEGIN, END
from kinesis_publishers.config.options import fanout, publisher, registration, retries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.properties import Properties

__all__ = ["IneffectiveKey", "ineffective_keys"]

_OF_FAN_OUT: Final[tuple[Option[Any], ...]] = (
    *registration.OPTIONS,
    # Not the limit of connections, which GetRecords has too.
    *(option for option in fanout.OPTIONS if option is not fanout.MAX_CONCURRENCY),
    *(
        option
        for group in (
            retries.DESCRIBE_CONSUMER,
            retries.LIST_CONSUMERS,
            retries.REGISTER_CONSUMER,
            retries.DEREGISTER_CONSUMER,
            retries.SUBSCRIBE_TO_SHARD,
        )
        for option in group.as_tuple()
    ),
)


@frozen(kw_only=True)
class IneffectiveKey:
    """A key without effect.

    Attributes:
        key: as the user wrote it.
        reason: why it has none.
    """

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} has no effect: {self.reason}"


def ineffective_keys(properties: Properties) -> tuple[IneffectiveKey, ...]:
    """Return the keys of ``properties`` that change nothing.

    What a publisher of somebody else's reads is not known: of it nothing is said.
    """
    return (
        *(
            IneffectiveKey(key=key, reason="this version does not read it")
            for key in properties.unimplemented_keys()
        ),
        *_unused_instants(properties),
        *_unused_fan_out(properties),
    )


def _unused_instants(properties: Properties) -> Iterator[IneffectiveKey]:
    for instant in (BEGIN, END):
        position = properties.get(instant.position).value
        if position == "AT_TIMESTAMP":
            continue
        for option in (instant.timestamp, instant.pattern):
            if properties.is_given(option):
                reason = f"{properties.written_key(instant.position)} is {position}"
                yield IneffectiveKey(key=properties.written_key(option), reason=reason)


def _unused_fan_out(properties: Properties) -> Iterator[IneffectiveKey]:
    if properties.get(publisher.RECORD_PUBLISHER) != "POLLING":
        return
    options = [
        *_OF_FAN_OUT,
        *map(registration.CONSUMER_ARN.of, properties.members(registration.CONSUMER_ARN)),
    ]
    reason = f"{properties.written_key(publisher.RECORD_PUBLISHER)} is POLLING"
    for option in options:
        if properties.is_given(option):
            yield IneffectiveKey(key=properties.written_key(option), reason=reason)
