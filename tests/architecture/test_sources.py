"""The shape of the packages: imports without circles, few modules at the root, short files."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import chain
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING

from tests.architecture.sources import PACKAGES, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.architecture.sources import Source

MAX_ROOT_MODULES = 6
MAX_LINES = 400

# The folders whose files may import one another in a circle.
KNOWN_CIRCLES: set[str] = set()


def imported_modules(source: Source) -> Iterator[str]:
    """Yield the modules that a file imports, for type checking too."""
    for module, name in source.imports():
        yield from origin(module, name)


def origin(module: str, name: str) -> Iterator[str]:
    """Yield the module that ``from module import name`` needs: what a package hands on counts."""
    known = sources()
    if f"{module}.{name}" in known:
        yield f"{module}.{name}"
    elif module in known:
        package = known[module].imports() if known[module].is_package else ()
        handed_on = [origin(*one) for one in package if one[1] == name]
        yield from chain(*handed_on) if handed_on else [module]


def circles() -> Iterator[list[str]]:
    """Yield circles of imports, until no more would be left without the last step of each."""
    graph = {name: set(imported_modules(one)) - {name} for name, one in sources().items()}
    while True:
        try:
            TopologicalSorter({name: sorted(graph[name]) for name in graph}).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            graph[circle[0]].remove(circle[1])
            yield circle
        else:
            return


def test_the_circles_of_imports_are_exactly_the_known_ones():
    known = sources()
    found = {commonpath([known[one].path for one in circle]): circle for circle in circles()}
    assert set(found) == KNOWN_CIRCLES, "\n".join(" -> ".join(one) for one in found.values())


def test_few_modules_stand_at_the_root():
    at_root = {one.path.name for one in sources().values() if one.path.parent == Path(PACKAGES[0])}
    assert len(at_root - {"__init__.py"}) <= MAX_ROOT_MODULES, at_root


def test_no_file_is_long():
    lines = {str(one.path): one.text.count("\n") for one in sources().values()}
    assert not {path: count for path, count in lines.items() if count > MAX_LINES}
