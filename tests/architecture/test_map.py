"""The maps of the code are right: the rooms in ``CONTRIBUTING.md``, the pictures, their arrows."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from docs.pictures import MAPS, PICTURES
from tests.architecture.sources import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

TESTS = ROOT / "tests"
FRAMEWORK, SPARK = ROOT / "kinesis_publishers", ROOT / "kinesis_publishers_spark"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARROWS = [(name, arrow) for name, picture in MAPS.items() for arrow in picture.arrows]


def rooms_in(package: Path) -> set[str]:
    """Return the folders and modules of a package."""
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    return folders | {path.name for path in package.glob("*.py") if path.stem[0] != "_"}


def rooms_of_the_page(package: Path = FRAMEWORK) -> list[str]:
    section = PAGE.partition("## Rooms")[2].partition("\n## ")[0]
    framework, _, spark = section.partition("\n| module |")
    rows = re.findall(r"^\| (`.*?`) \|", framework if package == FRAMEWORK else spark, re.MULTILINE)
    return [room for row in rows for room in re.findall(r"`([\w./]+)`", row)]


def rooms_of_the_contract() -> list[str]:
    text = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    layers = text.partition("contract:layers]")[2].partition("layers =")[2].partition("\n\n")[0]
    return re.findall(r"\w+", layers)


@cache
def rooms_imported_by(room: str) -> set[str]:
    """Return the rooms that the files of a room import, ``TYPE_CHECKING`` included."""
    modules = [
        module
        for source in sources().values()
        if room in (source.path.parts[0], *source.module.split(".")[1:2])
        for module, _ in source.imports()
    ]
    return {module.split(".")[1] for module in modules if module.startswith("kinesis_publishers.")}


@pytest.mark.parametrize("package", [FRAMEWORK, SPARK], ids=lambda package: package.name)
def test_the_page_has_every_room_and_no_other(package: Path) -> None:
    assert set(rooms_of_the_page(package)) == rooms_in(package)


def test_the_page_has_the_rooms_from_the_highest_layer_to_the_lowest() -> None:
    names = [room.removesuffix("/").removesuffix(".py") for room in rooms_of_the_page()]
    assert names == rooms_of_the_contract()


def test_the_tests_of_every_room_are_listed() -> None:
    section = PAGE.partition("## Find the tests of a room")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|$", section, re.MULTILINE)
    assert [room for room, _ in rows] == [*rooms_of_the_contract(), SPARK.name]
    listed = {ROOT / path for _, tests in rows for path in re.findall(r"`(tests/.*?)`", tests)}
    assert all(path.exists() for path in listed)
    folders = [path for level in ("unit", "integration") for path in (TESTS / level).iterdir()]
    assert {path for path in folders if (path / "__init__.py").exists()} <= listed


@pytest.mark.parametrize("level", ["unit", "integration"])
def test_the_folders_of_tests_have_the_names_of_rooms(level: str) -> None:
    folders = {f"{path.parent.name}/" for path in (TESTS / level).glob("*/__init__.py")}
    assert folders - {"spark/"} <= rooms_in(FRAMEWORK)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_up_to_date(name: str) -> None:
    # Otherwise: python -m docs.pictures
    drawn = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
    assert drawn == PICTURES[name]()


@pytest.mark.parametrize("picture", MAPS.values(), ids=MAPS)
def test_every_room_of_a_picture_exists(picture) -> None:
    shown = {box.room for box in picture.boxes if box.room}
    names = {room.removesuffix("/").removesuffix(".py") for room in rooms_in(FRAMEWORK)}
    assert shown <= names | {SPARK.name}


@pytest.mark.parametrize(
    ("name", "arrow"), ARROWS, ids=[f"{arrow.source}-{arrow.target}" for _, arrow in ARROWS]
)
def test_an_arrow_between_two_rooms_is_an_import(name: str, arrow) -> None:
    """The import may point the other way: a reader imports the engine that delivers to it."""
    source, target = (MAPS[name].box(title).room for title in (arrow.source, arrow.target))
    if not source or not target or source == target:
        return
    if arrow.through:
        assert arrow.through in rooms_imported_by(source) & rooms_imported_by(target)
    else:
        assert target in rooms_imported_by(source) or source in rooms_imported_by(target)
