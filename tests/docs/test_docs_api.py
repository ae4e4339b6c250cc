"""The reference of the Python API has every public name, and each says what it is."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.doc_pages import ROOT

_PACKAGES = ["kinesis_publishers", "kinesis_publishers_spark", "kinesis_publishers.testing"]
_PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
_IDENTIFIERS = set(re.findall(r"^::: ([\w.]+)$", _PAGE, re.MULTILINE))


def public_names(package: str) -> list[str]:
    return list(getattr(importlib.import_module(package), "__all__", ()))


_PUBLIC = [f"{package}.{name}" for package in _PACKAGES for name in public_names(package)]


def docstring_of(qualified: str) -> str | None:
    """Return the docstring of a class or function, or the one below an alias."""
    package, _, name = qualified.rpartition(".")
    module = importlib.import_module(package)
    value: Any = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, ModuleType):
        return value.__doc__
    source = Path(inspect.getsourcefile(defining_module(module, name)) or "").read_text("utf-8")
    body = ast.parse(source).body
    for statement, following in pairwise(body):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            text = following.value if isinstance(following, ast.Expr) else None
            return str(text.value) if isinstance(text, ast.Constant) else None
    return None


def defining_module(package: ModuleType, name: str) -> ModuleType:
    """Return the module from which a package takes a name that is neither class nor function."""
    tree = ast.parse(Path(inspect.getsourcefile(package) or "").read_text("utf-8"))
    # All statements: a package that imports lazily has them below TYPE_CHECKING.
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.ImportFrom) or not statement.module:
            continue
        if any((alias.asname or alias.name) == name for alias in statement.names):
            source = importlib.import_module(statement.module)
            return defining_module(source, name) if hasattr(source, "__path__") else source
    return package


@pytest.mark.parametrize("name", _PUBLIC)
def test_a_public_name_says_what_it_is(name: str) -> None:
    assert (docstring_of(name) or "").strip()


@pytest.mark.parametrize("name", _PUBLIC)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    # One line in docs/python-api.md: "::: " and the name.
    assert name in _IDENTIFIERS
