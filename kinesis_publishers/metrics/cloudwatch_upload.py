"""Sends metric data to CloudWatch, keeps what could not be sent, and says so in the log."""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from itertools import islice
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.aws.errors import RefusedError, mapped_errors
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.metrics.put_metric_data import requests_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_UNSENT_DATA", "CloudWatchUpload"]

_LOGGER = logging.getLogger(__name__)

#: How many data that could not be sent are kept for the next time; the KCL keeps as many.
MAX_UNSENT_DATA: Final = 10_000

_NOT_SENT: Final = (
    "Metrics could not be sent to CloudWatch: %s; up to %d data are kept and sent with the next "
    "ones. It needs the permission cloudwatch:PutMetricData and a way to the endpoint."
)
# Refused for what it says: it would be refused again, and hold up everything behind it.
_INVALID: Final = frozenset(
    {
        "InvalidFormat",
        "InvalidParameterCombination",
        "InvalidParameterCombinationException",
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "MissingParameter",
        "MissingRequiredParameterException",
        "RequestEntityTooLarge",
        "ValidationError",
        "ValidationException",
    }
)


class _Answer(Enum):
    """What has become of the data of a call."""

    TAKEN = "CloudWatch has them"
    REFUSED = "it does not take them, now or later"
    FAILED = "they are to be sent again"


class CloudWatchUpload:
    """The calls of PutMetricData. They block, and are made by one thread.

    :meth:`add` and :meth:`give_up` are for other threads.

    Nothing that goes wrong here is raised: metrics must not stop what they are about.

    Args:
        create_client: makes a client of boto3, when it is needed for the first time.
        namespace: the namespace of the data.
    """

    def __init__(self, create_client: Callable[[], Any], namespace: str) -> None:
        self._create_client = create_client
        self._namespace = namespace
        self._client: Any = None
        self._added: deque[dict[str, Any]] = deque()
        self._unsent: deque[dict[str, Any]] = deque()
        self._is_failing = False
        self._gives_up = Flag()

    def add(self, data: list[dict[str, Any]]) -> None:
        """Take data that are to be sent."""
        self._added.extend(data)

    def send(self) -> None:
        """Send what was added behind what could not be sent before; keep what fails."""
        self._drop_oldest()
        while self._added:
            self._unsent.append(self._added.popleft())
        has_taken = False
        for request in list(requests_of(self._unsent)):
            answer = _Answer.FAILED if self._gives_up.is_set() else self._put(request)
            if answer is _Answer.FAILED:
                return
            has_taken |= answer is _Answer.TAKEN
            for _ in request:
                self._unsent.popleft()
        if self._is_failing and has_taken:
            self._is_failing = False
            _LOGGER.info("CloudWatch takes metrics again.")

    def close(self) -> None:
        """Close the client; say what was not sent."""
        if unsent := len(self._unsent) + len(self._added):
            _LOGGER.warning("%d metric data were not sent to CloudWatch.", unsent)
        if self._client is not None:
            self._client.close()
            self._client = None

    def give_up(self) -> None:
        """Make no further call; from any thread."""
        self._gives_up.set()

    def _drop_oldest(self) -> None:
        excess = len(self._unsent) - MAX_UNSENT_DATA
        if excess <= 0:
            return
        kept = islice(self._unsent, excess, None)
        self._unsent = deque(kept)
        _LOGGER.warning(
            "%d metric data, the oldest, were dropped: CloudWatch has taken none for too long.",
            excess,
        )

    def _put(self, request: list[dict[str, Any]]) -> _Answer:
        """Make one call."""
        try:
            with mapped_errors(
                "PutMetricData",
                self._namespace,
                service="cloudwatch",
                client=self._client,
                unless=_INVALID,
            ):
                if self._client is None:
                    self._client = self._create_client()
                self._client.put_metric_data(Namespace=self._namespace, MetricData=request)
        except RefusedError as error:
            _LOGGER.warning(
                "CloudWatch refuses %d metric data for good; they are dropped: %s",
                len(request),
                error,
            )
            return _Answer.REFUSED
        except Exception as error:
            # The class that provides credentials may be the user's own, and raise anything.
            trace = None if isinstance(error, ServiceError) else error
            _LOGGER.log(self._level_of_failure(), _NOT_SENT, error, MAX_UNSENT_DATA, exc_info=trace)
            return _Answer.FAILED
        return _Answer.TAKEN

    def _level_of_failure(self) -> int:
        # A warning when it begins to fail, not each minute for as long as it does.
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        return level
