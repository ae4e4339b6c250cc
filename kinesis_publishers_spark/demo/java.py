"""Finds out whether Spark will find a Java that it can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["find_java_problem", "parse_major_version"]

# What Spark 4 needs.
_MINIMUM_JAVA: Final = 17

_INSTALL = (
    "Install one and run this again:\n"
    "  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless\n"
    "  macOS:           brew install openjdk@17\n"
    "Spark takes the one that JAVA_HOME points to, else the first on the PATH."
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_TIMEOUT_SECONDS = 30.0


def find_java_problem(environ: Mapping[str, str]) -> str | None:
    """Return what to tell the user if Spark cannot start with this environment, else ``None``."""
    java = _find_java(environ)
    if java is None:
        return f"Spark needs Java {_MINIMUM_JAVA} or later, and none was found.\n{_INSTALL}"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        # macOS has a `java` that only says that there is none.
        return f"Spark needs Java {_MINIMUM_JAVA}, but {java} does not run: {error}\n{_INSTALL}"
    major = parse_major_version(answer.stderr + answer.stdout)
    if major is None or major < _MINIMUM_JAVA:
        found = "of an unknown version" if major is None else f"Java {major}"
        return f"Spark needs Java {_MINIMUM_JAVA} or later; {java} is {found}.\n{_INSTALL}"
    return None


def _find_java(environ: Mapping[str, str]) -> str | None:
    """Return the ``java`` that Spark's launcher would run."""
    home = environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return shutil.which("java", path=environ.get("PATH"))


def parse_major_version(text: str) -> int | None:
    """Return the major version in what ``java -version`` printed; ``1.8.0`` is 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first
