"""The fixtures of the command line's tests."""

from __future__ import annotations

from tests.unit.cli.cli_support import run
from tests.unit.cli.lease_support import application, before_writes

__all__ = ["application", "before_writes", "run"]
