"""Certificates for servers that tests make themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trustme

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_bundle(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path
