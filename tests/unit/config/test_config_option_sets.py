"""What a package on top of the framework declares for itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kinesis_publishers.config import Properties, extension_options
from kinesis_publishers.config.catalogue import OWN_OPTIONS, all_options
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers_spark.options import SparkConfig

_ALONE = """
import sys
sys.modules["kinesis_publishers_spark"] = None  # As if it were not installed.
from kinesis_publishers import Properties
print(Properties.parse({"kinesis.streams": "orders"}))
Properties.parse({"kinesis.streams": "orders", "kinesis.spark.parallelism": 3})
"""


def test_the_options_of_an_extension_are_known_to_all_but_the_framework() -> None:
    assert extension_options() == SparkConfig.options()
    assert set(all_options()) == {*OWN_OPTIONS, *SparkConfig.options()}


def test_rules_of_an_extension_are_reported_with_all_others() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Properties.parse(
            {
                "kinesis.stream.recordpublisher": "EFO",
                "kinesis.spark.minrecordspertrigger": "9",
                "kinesis.spark.maxrecordspertrigger": "5",
            }
        )
    keys = [str(problem).partition(" ")[0] for problem in caught.value.problems]
    assert "kinesis.spark.minrecordspertrigger" in keys
    assert "kinesis.stream.efo.consumername" in keys


def test_without_the_extension_its_options_are_unknown_and_all_others_work() -> None:
    alone = subprocess.run(
        [sys.executable, "-c", _ALONE], capture_output=True, text=True, check=False
    )
    assert alone.stdout == "Properties(kinesis.streams='orders')\n"
    assert "kinesis.spark.parallelism: unknown option" in alone.stderr
