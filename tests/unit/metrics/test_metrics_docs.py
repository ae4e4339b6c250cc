"""The page about events and metrics says what the code does, and its examples run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from kinesis_publishers.events import EVENT_TYPES
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS, KPL_METRICS
from kinesis_publishers.metrics.table import METRICS

_DOCS = Path(__file__).parents[3] / "docs"
_TEXT = (_DOCS / "observability.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def _cloudwatch(monkeypatch: pytest.MonkeyPatch, moto_url: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", moto_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")


def test_the_tables_are_up_to_date() -> None:
    render = runpy.run_path(str(_DOCS / "generate.py"))["render_observability"]
    # Otherwise: tox -e docs
    assert render() == _TEXT


def test_every_event_is_in_the_reference_of_the_python_api() -> None:
    reference = (_DOCS / "python-api.md").read_text(encoding="utf-8")
    assert {one.__module__ for one in EVENT_TYPES} <= set(re.findall(r"::: (\S+)", reference))


def test_every_metric_is_on_the_page() -> None:
    listed = set(re.findall(r"^(?:- |\| )`([\w.]+)`", _TEXT, re.MULTILINE))
    names = {one.name for table in (METRICS, KCL_METRICS, KPL_METRICS) for one in table.metrics}
    assert names <= listed


@pytest.mark.usefixtures("_cloudwatch")
@pytest.mark.parametrize("block", [one for one in _BLOCKS if "logging" not in one])
def test_an_example_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "observability.md", "exec"), {"__name__": "example"})
    if "Counter" in block:
        assert capsys.readouterr().out == "1 shards, 0 throttles\n"


def test_the_example_of_logging_names_loggers_that_exist() -> None:
    (block,) = [one for one in _BLOCKS if "logging" in one and "summary" in one]
    compile(block, "observability.md", "exec")
    names = set(re.findall(r'getLogger\("([\w.]+)"\)', block))
    sources = Path(__file__).parents[3] / "kinesis_publishers"
    assert 'getLogger("kinesis_publishers")' in (sources / "events/sinks.py").read_text()
    assert (sources / "metrics/summary.py").is_file()
    assert names == {"kinesis_publishers", "kinesis_publishers.metrics.summary"}
