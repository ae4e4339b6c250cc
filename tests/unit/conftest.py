"""What all unit tests share: how hypothesis runs."""

from __future__ import annotations

from hypothesis import settings

# The first example of a test pays for lazy imports, and the machines of CI are shared: a deadline
# per example says nothing there. pytest's own timeout stops a test that hangs.
settings.register_profile("default-without-deadline", deadline=None)
settings.load_profile("default-without-deadline")
