"""What all events are: values with a level, a sentence for people and fields for machines."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

import attrs
from attrs import frozen

from kinesis_publishers.model import ShardKey
from kinesis_publishers.model.sources import stream_name_of


# Without slots: a pickle of an event would otherwise have the fields of this class alone.
@frozen(slots=False)
class Event:
    """A fact about reading or writing. ``str`` returns it as a sentence.

    Attributes:
        level: of the log: INFO in the life of a fetcher or a producer, DEBUG where there may be
            thousands a second, and WARNING or higher for what needs attention.
        says: the template of the sentence. A field stands in braces, and ``{stream}`` is the name
            of its stream. A format such as ``{error: with #}`` puts the value in the place of
            ``#``; ``None`` or ``""`` leaves the whole text out, and 1 makes its plural singular.
    """

    level: ClassVar[int] = logging.INFO
    says: ClassVar[str] = ""

    def __init_subclass__(cls, *, level: int | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if level is not None:
            cls.level = level

    def __str__(self) -> str:
        if not self.says:
            return repr(self)
        values = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        stream = stream_name_of(values.get("stream_arn") or "")
        return _SENTENCES.vformat(self.says, (), values | {"stream": stream})

    def fields(self) -> dict[str, Any]:
        """Return names and values that JSON can express.

        ``event`` names the class. A shard becomes ``stream``, ``stream_arn`` and ``shard``. A
        ``message`` is left out: the sentence quotes it.
        """
        found: dict[str, Any] = {"event": type(self).__name__}
        for name in attrs.fields_dict(type(self)):
            value = getattr(self, name)
            if isinstance(value, ShardKey):
                found["stream"], found["stream_arn"] = value.stream_name, value.stream_arn
                found["shard"] = value.shard_id
            elif name == "stream_arn":
                found |= {"stream": stream_name_of(value), name: value} if value else {}
            elif name != "message":
                found[name] = _plain(value)
        return found


@dataclass_transform(kw_only_default=True, frozen_default=True)
class OwnEvent(Event):
    """An event of this package: a frozen attrs class, whose fields are keywords."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # Without slots, for which attrs would make another class. Programs decorate their own.
        if cls.__module__.startswith("kinesis_publishers."):
            frozen(cls, kw_only=True, slots=False)


class ShardEvent(OwnEvent):
    shard: ShardKey


class _Sentences(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        before, mark, after = format_spec.partition("#")
        if not mark:
            return ", ".join(value) if isinstance(value, tuple) else format(value, format_spec)
        if value in (None, ""):
            return ""
        if isinstance(value, float):
            value = f"{value:.1f}"
        after = re.sub("(ie)?s$", lambda s: "y" if s[1] else "", after) if value == 1 else after
        return f"{before}{str(value).rstrip('.')}{after}"


_SENTENCES = _Sentences()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [*value]
    return value if value is None or isinstance(value, int | float | str) else str(value)
