"""The layers of the packages, as the contracts in ``setup.cfg`` state them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import sources

ROOT = Path(__file__).resolve().parents[2]
# In a process of its own: the linter changes sys.path and the configuration of logging.
LINT = "import sys; from importlinter.cli import lint_imports as run; sys.exit(run(no_cache=True))"

# What the Spark source may import of the framework, as any other user's package; its demo serves
# the stream that it reads.
PUBLIC = {
    "kinesis_publishers",
    "kinesis_publishers.config",
    "kinesis_publishers.errors",
    "kinesis_publishers.event_loop",
    "kinesis_publishers.events",
    "kinesis_publishers.producing",
    "kinesis_publishers.readers",
}
PUBLIC_FOR_DEMO = PUBLIC | {"kinesis_publishers.testing"}


def test_every_import_contract_is_kept():
    linting = subprocess.run(
        [sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linting.returncode == 0, linting.stdout + linting.stderr


def test_the_spark_source_imports_only_what_the_framework_makes_public():
    surplus = {
        (source.module, module)
        for source in sources().values()
        if source.module.startswith("kinesis_publishers_spark")
        for module, _ in source.imports()
        if module.partition(".")[0] == "kinesis_publishers"
        and module not in (PUBLIC_FOR_DEMO if ".demo." in source.module else PUBLIC)
    }
    assert not surplus
