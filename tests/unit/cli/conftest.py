"""The fixtures of the command line's tests."""

from __future__ import annotations

from cli_support import run

__all__ = ["run"]
