"""The workers of one application for each test."""

from __future__ import annotations

import pytest

from tests.unit.leases.lease_support import Group


@pytest.fixture
def group() -> Group:
    return Group()
