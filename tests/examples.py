"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings

_USUAL_PROFILE = 100


def examples(usual: int) -> int:
    """Return how many examples to try: ``usual``, and ten times as many in ``tox -e long``."""
    return usual * settings.default.max_examples // _USUAL_PROFILE
