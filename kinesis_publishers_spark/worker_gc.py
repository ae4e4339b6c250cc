"""Spares the garbage collector what stays loaded in a Python worker of Spark.

After every task Spark's daemon collects all garbage, which looks at each object that is alive: the
modules and the clients' service models, which stay for good, took 30 to 60 ms of every task.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext

__all__ = ["freeze_in_task"]


def freeze_in_task(*, again: bool = False) -> None:
    """Let the garbage collector pass over everything that is alive now, in a task.

    Elsewhere nothing happens: nobody else collects that often. What is frozen and becomes garbage
    is collected at the next freezing, which comes before there can be much of it.

    Args:
        again: also where that has been done before, because much has been loaded since.
    """
    if TaskContext.get() is None or (gc.get_freeze_count() and not again):
        return
    gc.unfreeze()
    gc.collect()
    gc.freeze()
