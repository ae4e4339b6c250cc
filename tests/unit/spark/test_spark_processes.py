"""What is changed in the processes of Spark: importers of archives, and the heap."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipimport
from typing import TYPE_CHECKING
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from kinesis_publishers_spark.processes import invalidate_if_changed, keep_heap

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


# Two blocks as large as pages, again and again; what is printed is how often the kernel had to find
# memory for them.
_PAGES = """
import resource
from kinesis_publishers_spark.processes import keep_heap
{prepare}
def read_pages(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        pages = [b"x" * (30 * 1024 * 1024) for _ in range(2)]
        del pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
read_pages(2)
print(read_pages(10))
"""


def page_faults(prepare: str, **environment: str) -> int:
    code = _PAGES.format(prepare=prepare)
    variables = {**os.environ, **environment}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
    )
    return int(run.stdout)


_ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's heap")


@_ON_GLIBC
def test_pages_come_into_memory_that_earlier_ones_have_left() -> None:
    by_default = page_faults("")
    assert page_faults("keep_heap()") < by_default / 10


@_ON_GLIBC
def test_what_the_environment_says_about_the_heap_holds() -> None:
    given = page_faults("keep_heap()", MALLOC_TRIM_THRESHOLD_="131072")
    assert given > 10 * page_faults("keep_heap()")


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr("os.confstr", unknown)
    monkeypatch.setattr("ctypes.CDLL", unknown)
    keep_heap()


# As where Spark runs a module: its collector before and after the clients are loaded.
_COLLECTOR = """
import gc, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("{main}", None)
import kinesis_publishers_spark.data_source
from kinesis_publishers_spark.processes import freeze_source
print(gc.isenabled())
freeze_source()
print(gc.isenabled())
"""


@pytest.mark.parametrize(
    ("main", "is_collecting"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", "False True"),
        ("pyspark.daemon", "True True"),
        ("my_program", "True True"),
    ],
)
def test_only_the_start_of_a_source_collects_no_garbage(main: str, is_collecting: str) -> None:
    command = [sys.executable, "-c", _COLLECTOR.format(main=main)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == is_collecting.split()
