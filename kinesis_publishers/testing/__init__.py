"""What tests of code that reads Kinesis need: named fakes, a clock to move, a local Kinesis.

Everything is imported when it is first used: pytest loads this package in every project where it is
installed, and the local server needs the extra ``local``. The contract suites, which need pytest,
are in :mod:`kinesis_publishers.testing.contracts`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_publishers.testing import fakes
    from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
    from kinesis_publishers.testing.manual_clock import ManualClock

__all__ = ["LocalKinesis", "Limits", "Behaviour", "Fault", "ManualClock", "fakes"]

_MODULES = {
    "LocalKinesis": "local_kinesis",
    "Limits": "local_kinesis",
    "Behaviour": "local_kinesis",
    "Fault": "local_kinesis",
    "ManualClock": "manual_clock",
}


def __getattr__(name: str) -> Any:
    if name == "fakes":
        return importlib.import_module(f"{__name__}.fakes")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
