"""Which stream is meant: by its name or by its ARN."""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from kinesis_publishers.errors import InvalidOptionError

__all__ = ["StreamSelector", "parse_streams"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/(?P<name>[a-zA-Z0-9_.-]{1,128})"
)


@frozen
class StreamSelector:
    """One stream.

    Attributes:
        name: the name of the stream.
        arn: its ARN, where that was given.
    """

    name: str
    arn: str | None = None

    @property
    def reference(self) -> str:
        """What calls name it by: the ARN, else the name."""
        return self.arn or self.name

    @property
    def region(self) -> str | None:
        """The region in the ARN, None without one."""
        match = _ARN.fullmatch(self.arn) if self.arn else None
        return match["region"] if match else None

    @classmethod
    def parse(cls, text: str) -> StreamSelector:
        """Return the stream that ``text`` means; raises ``ValueError`` for neither name nor ARN."""
        arn = _ARN.fullmatch(text)
        if arn:
            return cls(arn["name"], text)
        if _NAME.fullmatch(text):
            return cls(text)
        raise ValueError("neither a name nor an ARN")


def parse_streams(text: str, *, written_key: str) -> tuple[StreamSelector, ...]:
    """Return the streams in ``text``, separated by commas.

    Raises:
        InvalidOptionError: says of every entry what is wrong with it.
    """
    streams: list[StreamSelector] = []
    problems: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        try:
            stream = StreamSelector.parse(part)
        except ValueError:
            problems.append(
                f"{part!r} is neither the name of a stream (1 to 128 letters, digits, '_', '.' or "
                "'-') nor an ARN (arn:aws:kinesis:<region>:<account>:stream/<name>)"
            )
            continue
        if any(stream.name == other.name for other in streams):
            problems.append(f"the stream {stream.name!r} is there twice")
        streams.append(stream)
    if problems:
        raise InvalidOptionError(f"{written_key}: {'; '.join(problems)}")
    return tuple(streams)
