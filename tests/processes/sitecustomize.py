"""What each Python process does first that a test starts, or Spark for a test.

Spark lets its processes import PySpark from an archive, where Python finds no bytecode and compiles
each module again. The same modules are installed.
"""

from __future__ import annotations

import sys

sys.path[:] = [path for path in sys.path if "/pyspark/python/lib/" not in path]
