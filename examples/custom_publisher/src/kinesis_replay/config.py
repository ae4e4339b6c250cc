"""The options of this package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen

from kinesis_publishers.config import DecimalNumber, Option, Text

if TYPE_CHECKING:
    from kinesis_publishers import Properties

__all__ = ["ReplayConfig"]

PATH: Final[Option[str | None]] = Option(
    key="custom.replay.path",
    parser=Text(accepts="the path of a Parquet file or of a directory of them"),
    default=None,
    required=True,
    section="Replay",
    doc="The recording to replay.",
)
SPEED: Final[Option[float]] = Option(
    key="custom.replay.speed",
    parser=DecimalNumber(minimum=0.0),
    default=1.0,
    section="Replay",
    doc="How many times as fast as the records arrived; 0 does not wait at all.",
)


@frozen(kw_only=True)
class ReplayConfig:
    """What the user configured.

    Attributes:
        path: a Parquet file, or a directory of them.
        speed: how many times as fast as the records arrived; 0 does not wait at all.
    """

    path: Path
    speed: float

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Read the options.

        Raises:
            ConfigErrors: lists every unknown key, bad value and missing option.
        """
        own = properties.custom(PATH, SPEED)
        return cls(path=Path(own.get(PATH) or ""), speed=own.get(SPEED))
