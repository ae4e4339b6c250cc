"""The fixtures of the command line's tests."""

from __future__ import annotations

from tests.unit.cli.cli_support import run

__all__ = ["run"]
