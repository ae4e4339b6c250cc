"""What this package changes in the Python processes that Spark starts: all of it is here.

Workers serve the tasks of every query, so that each change must suit code that is not ours.
"""

from __future__ import annotations

import gc
import os
from zipimport import zipimporter

from pyspark import TaskContext

__all__ = ["freeze", "prepare_worker"]

_read_directory_again = zipimporter.invalidate_caches


def prepare_worker(*, again: bool = False) -> None:
    """Make the next tasks of this worker cheaper; in a task only, elsewhere nothing happens.

    Spark collects garbage after every task, and before 4.3 it makes every task invalidate the
    caches of all importers.

    Args:
        again: also where that has been done before, because much has been loaded since.
    """
    if TaskContext.get() is None or (gc.get_freeze_count() and not again):
        return
    zipimporter.invalidate_caches = invalidate_if_changed  # type: ignore[method-assign]
    freeze()


def freeze() -> None:
    """Let the garbage collector pass over everything that is alive now.

    What is frozen and becomes garbage is collected at the next freezing, which comes before there
    can be much of it.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def invalidate_if_changed(importer: zipimporter) -> None:
    """Read the directory of the importer's archive again if the archive may have changed.

    Python reads it in any case, and each package in an archive has an importer: with PySpark's that
    takes 90 ms. An importer's first invalidation reads, because nobody knows what it has seen.
    """
    try:
        found = os.stat(importer.archive)
        # Before reading: what changes meanwhile shows the next time.
        seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    except OSError:
        seen = None
    if seen is None or vars(importer).get("_seen") != seen:
        _read_directory_again(importer)
        vars(importer)["_seen"] = seen
