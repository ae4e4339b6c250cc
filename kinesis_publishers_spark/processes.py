"""All changes of this package to the Python processes that Spark starts.

Workers serve the tasks of every query, so each change must suit other code.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from itertools import count
from zipimport import zipimporter

from pyspark import TaskContext

from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers_spark.boundary import FORMAT_VARIABLE, LEVEL_VARIABLE

# How long Spark's thread may wait for the planner's, which is busy while it polls many shards: with
# Python's default of 5 ms, a trigger that finds nothing took three times as long.
_SWITCH_SECONDS = 0.0005
_SOURCE_MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
# The parameters of mallopt (malloc.h) and their values. The pages of several shards fit into what
# is kept; with one arena it is kept once, and not in each thread.
_HEAP_OPTIONS = {
    -3: 32 * 1024 * 1024,  # M_MMAP_THRESHOLD: the largest value; a page of 10 MB is smaller
    -1: 64 * 1024 * 1024,  # M_TRIM_THRESHOLD
    -8: 1,  # M_ARENA_MAX
}
_LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
read_directory_again = zipimporter.invalidate_caches
_freezes = count()


def freeze_spark() -> None:
    """Exclude what PySpark has loaded from garbage collection, in a process of Spark's own.

    The imports that follow would otherwise make the collector traverse it several times. In the
    process of a query's source it rests until :func:`freeze_source`, a seventh of the start.
    """
    if _main_module().startswith("pyspark."):
        gc.freeze()
    if _main_module() == _SOURCE_MODULE:
        gc.disable()


def _main_module() -> str:
    spec = sys.modules["__main__"].__spec__
    return "" if spec is None else spec.name


def prepare_worker(*, again: bool = False) -> None:
    """Make the next tasks of this worker cheaper; without effect outside a task.

    Spark collects garbage after every task, and before 4.3 it makes every task invalidate the
    caches of all importers.

    Args:
        again: repeat it, because many modules were loaded since the last time.
    """
    is_prepared = zipimporter.invalidate_caches is invalidate_if_changed
    if TaskContext.get() is None or (is_prepared and not again):
        return
    if FORMAT_VARIABLE in os.environ:
        write_logs()
    zipimporter.invalidate_caches = invalidate_if_changed  # type: ignore[assignment]
    _freeze()


def prepare_source() -> None:
    """Make planning and fetching cheaper in the process that Spark keeps for a query's source.

    It is called before the first thread starts.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
    # A program that runs a planner itself controls its own memory.
    if _main_module() == _SOURCE_MODULE:
        keep_heap()


def freeze_source() -> None:
    """Exclude the loaded clients from garbage collection in the process of a query's source.

    The thousands of objects of a page make the collector traverse all living ones.
    """
    if _main_module() == _SOURCE_MODULE:
        _freeze()
        gc.enable()


def write_logs() -> None:
    """Write the packages' logs to standard error as two environment variables say.

    Logging is not configured in the processes that Spark starts: without a handler, Python writes
    warnings only, as text. Handlers that exist already are left alone.

    Raises:
        ConfigError: the level or the format does not exist.
    """
    level = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    if level and level not in logging.getLevelNamesMapping():
        raise InvalidOptionError(
            f"The environment variable {LEVEL_VARIABLE} is {level!r}: use DEBUG, INFO, WARNING or "
            "ERROR."
        )
    if not level and not os.environ.get(FORMAT_VARIABLE):
        return
    from kinesis_publishers.events import log_formatter

    formatter = log_formatter(logging.Formatter(_LOG_LINE))
    for logger in map(logging.getLogger, ("kinesis_publishers", "kinesis_publishers_spark")):
        if level:
            logger.setLevel(level)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(formatter)
            logger.addHandler(handler)


def keep_heap() -> None:
    """Let glibc keep up to 64 MiB of free memory for the next page.

    By default the order of the blocks decides whether they return to the kernel after each page,
    which then clears new ones: up to 700 page faults per MB. Other C libraries are left alone, and
    so is a process whose environment has such settings.
    """
    try:
        is_glibc = bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):  # Another C library does not know the name.
        is_glibc = False
    if is_glibc and not os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}:
        for name, value in _HEAP_OPTIONS.items():
            ctypes.CDLL(None).mallopt(name, value)


def _freeze() -> None:
    """Exclude all living objects from garbage collection.

    Frozen garbage is collected at the next freeze, which comes before much can accumulate. The
    first time there is none.
    """
    if next(_freezes):
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def invalidate_if_changed(importer: zipimporter) -> None:
    """Read the directory of the importer's archive again if the archive may have changed.

    Python always reads it, and each package in an archive has an importer: with PySpark's that
    takes 90 ms. The first invalidation of an importer reads too, because its state is unknown.
    """
    try:
        found = os.stat(importer.archive)
        # Before reading: a change in the meantime is found the next time.
        seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    except OSError:
        seen = None
    if seen is None or vars(importer).get("_seen") != seen:
        read_directory_again(importer)
        vars(importer)["_seen"] = seen
