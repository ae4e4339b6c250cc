"""Where native code is found, and what is said where it is not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.model.native import SWITCH, find_native, native

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = "kinesis_publishers_native"


@pytest.fixture(autouse=True)
def _found_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH, raising=False)
    find_native.cache_clear()
    yield
    find_native.cache_clear()


@pytest.fixture
def _without_installed() -> Iterator[None]:
    installed = sys.modules.pop(MODULE, None)
    yield
    sys.modules.pop(MODULE, None)
    if installed is not None:
        sys.modules[MODULE] = installed


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("raise ModuleNotFoundError", "Python (kinesis-publishers-native is not installed)"),
        (
            "raise ImportError('no such symbol')",
            "Python (kinesis-publishers-native cannot be loaded: no such symbol)",
        ),
        (
            "__version__ = '9.0'; INTERFACE = 99",
            "Python (kinesis-publishers-native 9.0 belongs to another version)",
        ),
    ],
)
@pytest.mark.usefixtures("_without_installed")
def test_python_decodes_where_native_code_cannot(
    content: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / f"{MODULE}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_native() == (None, expected)
    assert native() is None


def test_native_code_can_be_switched_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SWITCH, "0")
    assert find_native() == (None, "Python (KINESIS_PUBLISHERS_NATIVE is 0)")


def test_native_code_is_used_where_it_is_installed():
    installed = pytest.importorskip(MODULE)
    assert native() is installed
    version = installed.__version__
    assert find_native()[1] == f"native code (kinesis-publishers-native {version})"
