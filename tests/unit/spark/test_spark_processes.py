"""What is changed in the processes of Spark: importers of archives."""

from __future__ import annotations

import os
import zipimport
from typing import TYPE_CHECKING
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from kinesis_publishers_spark.processes import invalidate_if_changed

if TYPE_CHECKING:
    from pathlib import Path


def write(archive: Path, **modules: str) -> None:
    with ZipFile(archive, "w") as written:
        for name, code in modules.items():
            written.writestr(f"{name}.py", code)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "modules.zip"
    write(path, first="pass")
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives whose directories are read from now on."""
    seen: list[str] = []
    read = getattr(zipimport, "_read_directory")  # noqa: B009

    def spy(archive: str) -> object:
        seen.append(archive)
        return read(archive)

    monkeypatch.setattr(zipimport, "_read_directory", spy)
    return seen


def finds(importer: zipimporter, name: str) -> bool:
    return importer.find_spec(name) is not None


def test_an_archive_that_has_not_changed_is_not_read_again(archive: Path, reads: list[str]) -> None:
    importer = zipimporter(str(archive))
    invalidate_if_changed(importer)
    assert finds(importer, "first")
    reads.clear()
    invalidate_if_changed(importer)
    assert finds(importer, "first")
    assert reads == []


def test_every_importer_sees_a_module_that_is_added(archive: Path) -> None:
    importers = [zipimporter(str(archive)) for _ in range(3)]
    for one in importers:
        invalidate_if_changed(one)
    write(archive, first="pass", second="pass")
    for one in importers:
        invalidate_if_changed(one)
    assert [finds(one, "second") for one in importers] == [True] * 3


def test_an_importer_that_was_made_of_an_old_listing_sees_what_is_new(archive: Path) -> None:
    invalidate_if_changed(zipimporter(str(archive)))
    write(archive, first="pass", second="pass")
    late = zipimporter(str(archive))  # Python lists an archive once for all of its importers.
    invalidate_if_changed(late)
    assert finds(late, "second")


def test_an_archive_of_the_same_size_that_takes_its_place_is_read(
    archive: Path, tmp_path: Path
) -> None:
    importer = zipimporter(str(archive))
    invalidate_if_changed(importer)
    before = archive.stat()
    write(tmp_path / "other.zip", later="pass")
    os.utime(tmp_path / "other.zip", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "other.zip").replace(archive)
    assert archive.stat().st_size == before.st_size
    invalidate_if_changed(importer)
    assert (finds(importer, "first"), finds(importer, "later")) == (False, True)


def test_an_archive_may_go_and_come_back(archive: Path) -> None:
    importer = zipimporter(str(archive))
    invalidate_if_changed(importer)
    archive.unlink()
    invalidate_if_changed(importer)
    assert not finds(importer, "first")
    write(archive, first="pass")
    invalidate_if_changed(importer)
    assert finds(importer, "first")
