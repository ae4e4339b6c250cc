"""Tools for tests of code that uses Kinesis: named fakes, a clock to move, a local Kinesis.

Everything is imported when it is first used: pytest loads this package in every project where it is
installed, and the local server needs the packages of the extra ``local``. The
contract suites, which need pytest, are in :mod:`kinesis_publishers.testing.contracts`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_publishers.testing import fakes
    from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
    from kinesis_publishers.testing.manual_clock import ManualClock

__all__ = ["LocalKinesis", "Limits", "Behaviour", "Fault", "ManualClock", "fakes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "fakes":
        return importlib.import_module(f"{__name__}.fakes")
    module = "manual_clock" if name == "ManualClock" else "local_kinesis"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
