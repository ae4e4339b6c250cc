"""Keys of classes that somebody else wrote: this package carries them, and knows none of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import frozen

from kinesis_publishers.config.option import Namespace, Option, OptionFamily

if TYPE_CHECKING:
    from kinesis_publishers.config.parsers import Scalar

PREFIX: Final = "custom."


@frozen
class _AsWritten:
    """Whatever was written: who declares the key says what is accepted."""

    accepts: str = "what the class that reads the key accepts"
    unit: None = None

    def __call__(self, value: Scalar) -> Scalar:
        return value


CUSTOM: Final[OptionFamily[Scalar | None]] = OptionFamily(
    member=Option(
        key=f"{PREFIX}<key>",
        parser=_AsWritten(),
        default=None,
        namespace=Namespace.OURS,
        section="Custom classes",
        doc="An option of a record publisher of your own, which declares and checks it.",
        # Only the class that reads it knows whether it is.
        secret=True,
    ),
    placeholder="<key>",
    name_pattern=re.compile(r"[a-zA-Z0-9_.-]{1,128}"),
)

FAMILIES: Final = (CUSTOM,)
