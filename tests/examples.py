"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

#: ``ci``, ``long`` or ``soak``; ``tests/conftest.py`` has them.
PROFILE: Final = settings.get_current_profile_name()


def examples(usual: int, *, deep: bool = False) -> int:
    """Return how many examples to try: ``usual``, and ten times as many in ``tox -e soak``.

    A ``deep`` property, which has the marker of that name, has four times as many in
    ``tox -e long`` already, and a hundred times in ``tox -e soak``.
    """
    return usual * {"long": 4 if deep else 1, "soak": 100 if deep else 10}.get(PROFILE, 1)


def parts(count: int) -> list[object]:
    """Return the numbers of so many parts of a search, of which ``tox -e long`` has two."""
    return [pytest.param(one, marks=[pytest.mark.soak] * (one > 1)) for one in range(count)]
