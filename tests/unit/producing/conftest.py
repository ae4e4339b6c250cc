"""Fixtures of the producer's tests."""

from tests.unit.producing.producing_support import writing as writing
