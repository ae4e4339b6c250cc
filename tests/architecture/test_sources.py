"""The shape of the packages: imports without circles, few modules at the root, short files."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import PACKAGES, ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.architecture.sources import Source

MAX_ROOT_MODULES = 6
MAX_LINES = 400
# The services that have streams: their publishers, and their ARNs.
SOURCES = "kinesis_publishers/model/sources.py"
# The assembly loads the ones that a service names; nothing else makes one.
CLIENTS = {"AioDataPlane", "Boto3ControlPlane"}
BUILT_BY_THE_ASSEMBLY = {
    "DataLossGuard",
    "Deaggregator",
    "PendingPool",
    "ShardDiscovery",
}


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


def test_no_imports_form_a_circle():
    graph = {name: set(imported_modules(one)) - {name} for name, one in sources().items()}
    try:
        TopologicalSorter({name: sorted(graph[name]) for name in graph}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_few_modules_stand_at_the_root():
    at_root = {one.path.name for one in sources().values() if one.path.parent == Path(PACKAGES[0])}
    assert len(at_root - {"__init__.py"}) <= MAX_ROOT_MODULES, at_root


def test_no_file_is_long():
    lines = {str(one.path): one.text.count("\n") for one in sources().values()}
    assert not {path: count for path, count in lines.items() if count > MAX_LINES}


def test_the_native_code_has_the_version_of_the_package():
    own = configparser.ConfigParser(interpolation=None)
    own.read(ROOT / "setup.cfg")
    cargo = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    assert cargo["package"]["version"] == own["metadata"]["version"]


def test_commands_fill_tables_in_one_place():
    """There what a table or a service has said is escaped; ``line`` has texts that are."""
    filling = [str(one.path) for one in sources().values() if "able.add_row(" in one.text]
    assert [path for path in filling if "/cli/" in path] == [
        "kinesis_publishers/cli/shared/console.py"
    ]


@pytest.mark.parametrize(
    "pattern", ["EFO|POLLING", ".*:stream/.*", ".*:(AioDataPlane|Boto3ControlPlane)"]
)
def test_one_file_knows_services(pattern: str):
    """All others ask what a publisher can do, which clients there are, or for a part of an ARN."""
    naming = {
        str(one.path)
        for one in sources().values()
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Constant) and re.fullmatch(pattern, str(node.value), re.DOTALL)
    }
    assert {path for path in naming if "testing" not in path} == {SOURCES}


def test_one_file_takes_a_name_out_of_an_arn():
    taking = {str(one.path) for one in sources().values() if '.rpartition("/")[2]' in one.text}
    assert taking == {SOURCES}


def test_only_the_assembly_builds_clients_and_services():
    building = {
        (str(one.path), node.func.id)
        for one in sources().values()
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in BUILT_BY_THE_ASSEMBLY | CLIENTS
        and not one.module.startswith("kinesis_publishers.testing")
    }
    rooms = {path.rpartition("/")[0] for path, _ in building}
    assert rooms == {"kinesis_publishers/assembly"}, building
    assert {name for _, name in building} == BUILT_BY_THE_ASSEMBLY
