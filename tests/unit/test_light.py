"""A reader without Spark is light: what only some users need is an extra, which errors name."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ROOT = Path(__file__).parents[2]
_SETUP = configparser.ConfigParser(interpolation=None)
_SETUP.read(_ROOT / "setup.cfg")
_OPTIONAL = (
    "backports.zstd click fastavro greenlet h2 hpack msgpack opentelemetry pandas "
    "prometheus_client pyarrow pyspark"
)
_MOST_PACKAGES = 28
_MOST_BYTES = 60 * 1000 * 1000


def run_lightly(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where nothing is installed but what every reader needs."""
    blocked = f"import sys\nfor name in {_OPTIONAL.split()!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def closure(requirements: list[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return what ``requirements`` install, by name, with what that requires."""
    for text in requirements:
        requirement = Requirement(text)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(requirement.name)
        except PackageNotFoundError:
            pytest.fail(f"{text} is not installed")
        closure(found[name].requires or [], found)
    return found


def test_a_reader_installs_few_packages_and_megabytes() -> None:
    required = _SETUP["options"]["install_requires"].split("\n")
    texts = [line for line in required if line.strip() and not line.startswith("#")]
    found = closure(texts, {})
    sizes = {
        name: sum(
            path.stat().st_size
            for path in map(Path, (one.locate_file(file) for file in one.files or ()))
            if path.is_file() and path.suffix != ".pyc"
        )
        for name, one in found.items()
    }
    assert len(found) <= _MOST_PACKAGES, sorted(found)
    assert 10_000_000 < sum(sizes.values()) < _MOST_BYTES, sizes


def test_it_reads_writes_and_keeps_checkpoints(local_kinesis: LocalKinesis, tmp_path: Path) -> None:
    local_kinesis.create_stream("orders", 2)
    properties = {
        **local_kinesis.properties("orders"),
        "kinesis.checkpoint.application": "light",
        "kinesis.checkpoint.sqlite.path": str(tmp_path / "checkpoints"),
    }
    code = f"""
from kinesis_publishers import BlockingProducer, records

properties = {properties!r}
with BlockingProducer.from_properties(properties, producer_aggregation=True) as producer:
    producer.put_many([(b"%d" % number, str(number)) for number in range(100)]).result()
with records(properties, start="TRIM_HORIZON") as stream:
    print(sorted(int(record.data) for _, record in zip(range(100), stream)) == list(range(100)))
"""
    result = run_lightly(code)
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_it_polls_over_https_and_says_what_a_subscription_needs() -> None:
    with LocalKinesis.in_thread(tls=True) as server:
        server.create_stream("orders")
        server.put_many("orders", [("a", b"1")])
        code = f"""
from kinesis_publishers import records

properties = {server.properties("orders")!r}
print(next(records(properties, start="TRIM_HORIZON")).data)
endpoint = properties.pop("aws.endpoint")
import os
os.environ["AWS_ENDPOINT_URL_KINESIS"] = endpoint
next(records(properties, publisher="EFO", consumer_name="me"))
"""
        result = run_lightly(code)
    assert result.stdout == "b'1'\n"
    assert "needs h2: pip install 'kinesis-publishers[efo]'" in result.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "from kinesis_publishers.cli import run; run()",
            r"needs click: pip install 'kinesis-publishers\[cli\]'",
        ),
        (
            (
                "from kinesis_publishers import records\n"
                "next(records(stream='orders', region='eu-west-1', publisher='EFO', "
                "consumer_name='me'))"
            ),
            r"needs h2: pip install 'kinesis-publishers\[efo\]'",
        ),
        (
            "from kinesis_publishers import RecordBatch\nRecordBatch.to_arrow(None)",
            r"to_arrow\(\) needs: pip install 'kinesis-publishers\[arrow\]'",
        ),
        (
            "from kinesis_publishers import records\nrecords(stream='orders', decode='msgpack')",
            r"pip install 'kinesis-publishers\[msgpack\]'",
        ),
        (
            "from kinesis_publishers import records\nrecords(stream='orders', decode='zstd')",
            r"pip install 'kinesis-publishers\[zstd\]'",
        ),
        (
            "import kinesis_publishers.testing as t; t.LocalKinesis.in_thread().__enter__()",
            r"which LocalKinesis needs: pip install 'kinesis-publishers\[local\]'",
        ),
        (
            "from kinesis_publishers.formats import avro\navro({})",
            r"pip install 'kinesis-publishers\[avro\]'",
        ),
        (
            (
                "from kinesis_publishers import records\n"
                "next(records(stream='orders', region='eu-west-1', metrics_sinks='prometheus'))"
            ),
            r"pip install 'kinesis-publishers\[prometheus\]'",
        ),
    ],
    ids=["command line", "fan-out", "arrow", "msgpack", "zstd", "local", "avro", "prometheus"],
)
def test_an_error_names_the_extra_that_is_missing(code: str, message: str) -> None:
    result = run_lightly(code)
    assert result.returncode == 1
    assert re.search(message, result.stderr), result.stderr


def test_the_extra_all_has_every_other_one_of_users() -> None:
    extras = {
        name: set(re.findall(r"%\((\w+)\)s", text))
        for name, text in _SETUP["options.extras_require"].items()
    }

    def reached(name: str) -> set[str]:
        return {name}.union(*map(reached, extras[name]))

    others = extras.keys() - reached("all") - {"demo", "test", "lint", "benchmark", "docs"}
    assert others == set()


def test_pages_name_the_wheel_of_this_version() -> None:
    texts = [path.read_text("utf-8") for path in (_ROOT / "README.md", *_ROOT.glob("docs/*.md"))]
    named = {found for text in texts for found in re.findall(r"publishers-(\d[\d.]*)-py3", text)}
    assert named == {_SETUP["metadata"]["version"]}
    # No index has the package: an extra adds to what a checkout or a wheel has installed.
    assert not [
        text for text in texts if re.search(r"pip install [\"']?kinesis-publishers(?!\[)", text)
    ]
