"""Symbolic links in the place of a file, which another user may have planted."""

from __future__ import annotations

from pathlib import Path


def problem_of_link(path: Path) -> str | None:
    """Return what is wrong with a path and which path to give instead; ``None`` without a link."""
    if not path.is_symlink():
        return None
    target = path.resolve()
    return f"{path} is a symbolic link, which is not followed: name the file itself, {target}"
