"""The source files of the packages, each parsed once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import Factory, field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kinesis_publishers", "kinesis_publishers_spark")


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.module, alias.name


@frozen(kw_only=True, eq=False)
class Source:
    """One source file.

    Attributes:
        module: the dotted name; that of the package for an ``__init__.py``.
        path: relative to the root of the repository.
    """

    module: str
    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(
        init=False, repr=False, default=Factory(lambda self: ast.parse(self.text), takes_self=True)
    )
    _imports: tuple[tuple[str, str], ...] = field(
        init=False,
        repr=False,
        default=Factory(lambda self: tuple(_imports(self.tree)), takes_self=True),
    )

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imports(self) -> tuple[tuple[str, str], ...]:
        """Return each import, for type checking too, as a module and a name in it, if any."""
        return self._imports


@cache
def sources() -> Mapping[str, Source]:
    """Return every source file of the packages, by the name of its module."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            parts = relative.with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[module] = Source(module=module, path=relative, text=path.read_text("utf-8"))
    return MappingProxyType(found)
