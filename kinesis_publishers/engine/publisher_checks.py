"""What is checked of a publisher that somebody else wrote, where it can be seen for the first time.

The class of the factory is checked when it is loaded; what it makes is known only once it makes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kinesis_publishers.abc import RecordPublisher
from kinesis_publishers.config.plugins import check_fit
from kinesis_publishers.errors import PluginLoadError, PublisherCancelledError
from kinesis_publishers.model import RunResult

if TYPE_CHECKING:
    from kinesis_publishers.model import Shard

__all__ = ["check_publisher", "check_result"]


def check_publisher(publisher: object, shard: Shard) -> None:
    """Check what ``create`` of a factory has returned.

    Raises:
        PluginLoadError: it is no publisher, or cannot be run as one.
    """
    if not isinstance(publisher, RecordPublisher):
        raise PluginLoadError(
            f"{shard}: create() of the record publisher factory returned "
            f"{type(publisher).__name__}, which does not extend RecordPublisher: return an "
            "instance of a subclass"
        )
    _check_class(type(publisher))


@lru_cache
def _check_class(kind: type) -> None:
    check_fit(kind, RecordPublisher, reference=f"{kind.__module__}:{kind.__qualname__}")


def check_result(
    result: object, publisher: RecordPublisher, shard: Shard, *, is_stopping: bool
) -> None:
    """Check what ``run`` of a publisher has returned.

    Raises:
        PluginLoadError: it is no result. Taken for INCOMPLETE, it would be asked again for ever.
        PublisherCancelledError: it is CANCELLED, but the reader is not stopping.
    """
    if not isinstance(result, RunResult):
        raise PluginLoadError(
            f"{shard}: run() of {type(publisher).__name__} returned {result!r}: return "
            "RunResult.INCOMPLETE, or RunResult.COMPLETE after the last record of the shard"
        )
    if result is RunResult.CANCELLED and not is_stopping:
        raise PublisherCancelledError(
            f"{shard}: {type(publisher).__name__} returned CANCELLED, but nobody asked it to stop. "
            "A publisher may return it only after it was told to."
        )
