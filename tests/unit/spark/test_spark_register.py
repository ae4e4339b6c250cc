"""How the source becomes known to a session."""

from __future__ import annotations

import pickle
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from pyspark import cloudpickle
from pyspark.errors import AnalysisException

from kinesis_publishers.errors import ConfigError, PluginLoadError
from kinesis_publishers_spark import KinesisDataSource, register
from kinesis_publishers_spark.schema import SPARK_SCHEMA
from tests.unit.spark.spark_schemas import struct_type

_OPTIONS = {"streamname": "orders", "region": "eu-west-1"}


@define
class _Session:
    """A session in which registering may be refused, as Spark does it."""

    version: str = "4.3.0"
    refusal: str | None = None
    registered: list[type[KinesisDataSource]] = field(factory=list)
    #: The part of the context that says how workers are started.
    pythonExec: str = sys.executable
    _python_includes: tuple[str, ...] = ()

    @property
    def _sc(self) -> Any:
        return self

    @property
    def dataSource(self) -> Any:
        return self

    def register(self, source: type[KinesisDataSource]) -> None:
        if self.refusal is not None:
            raise AnalysisException("refused", errorClass=self.refusal)
        self.registered.append(source)


def test_the_source_is_registered_as_itself() -> None:
    session = _Session()
    register(session)
    assert session.registered == [KinesisDataSource]


def test_another_name_is_another_class_that_travels_by_value() -> None:
    session = _Session()
    register(session, name="streams")
    (source,) = session.registered
    travelled = pickle.loads(cloudpickle.dumps(source))
    assert travelled.name() == "streams"
    loaded = pickle.loads(cloudpickle.dumps(travelled(_OPTIONS)))
    assert loaded.name() == "streams"
    assert loaded.streamReader(struct_type(SPARK_SCHEMA)) is not None


def test_what_the_application_permits_travels_with_the_class() -> None:
    session = _Session()
    own = {**_OPTIONS, "kinesis.stream.recordpublisher": "no_such_module:Mine"}
    register(session, allow=["no_such_module:*"])
    (source,) = session.registered
    travelled = pickle.loads(cloudpickle.dumps(source))
    assert travelled.name() == "kinesis"
    with pytest.raises(PluginLoadError, match="no_such_module"):
        travelled(own)
    with pytest.raises(ConfigError, match="permitted"):
        KinesisDataSource(own)


def test_permissions_that_spark_4_0_would_drop_are_an_error() -> None:
    session = _Session(version="4.0.1", refusal="DATA_SOURCE_ALREADY_EXISTS")
    with pytest.raises(ConfigError, match="another name"):
        register(session, allow=["my_package.*"])


def test_what_spark_4_0_has_discovered_itself_need_not_be_registered() -> None:
    register(_Session(version="4.0.1", refusal="DATA_SOURCE_ALREADY_EXISTS"))


@pytest.mark.parametrize(("version", "name"), [("4.3.0", "kinesis"), ("4.0.1", "csv")])
def test_a_name_that_a_jar_has_is_an_error_that_says_what_to_do(version: str, name: str) -> None:
    session = _Session(version=version, refusal="DATA_SOURCE_ALREADY_EXISTS")
    with pytest.raises(ConfigError, match=rf"'{name}'.*another name with register\(spark, name="):
        register(session, name=name)


def test_any_other_refusal_is_spark_s_own() -> None:
    with pytest.raises(AnalysisException, match="refused"):
        register(_Session(refusal="INTERNAL_ERROR"))


@pytest.mark.parametrize(
    ("answer", "sent", "said"),
    [
        ("3.4 False", (), "is Python 3.4, and this driver has"),
        ("{own} False", (), "cannot import kinesis_publishers_spark"),
        ("{own} True", (), None),
        ("Welcome to our cluster. 3.4 False", (), "is Python 3.4, and this driver has"),
        # By addPyFile, which a bare interpreter does not see.
        ("{own} False", ("packages.zip",), None),
    ],
)
def test_another_interpreter_of_the_workers_is_a_warning_where_it_cannot_work(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: str,
    sent: tuple[str, ...],
    said: str | None,
) -> None:
    python = tmp_path / "python"
    own = "{}.{}".format(*sys.version_info)
    python.write_text(f"#!/bin/sh\necho {answer.format(own=own)}\n")
    python.chmod(0o755)
    register(_Session(pythonExec=str(python), python_includes=sent))
    if said is None:
        assert caplog.text == ""
    else:
        assert f"workers run {python}, which {said}" in caplog.text
        assert f"set PYSPARK_PYTHON={sys.executable}" in caplog.text


def test_a_checkout_from_which_a_query_is_started_is_no_installation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers find the package in the current folder, and not what it needs.
    monkeypatch.chdir(Path(__file__).parents[3])
    venv.create(tmp_path, with_pip=False)
    register(_Session(pythonExec=str(tmp_path / "bin" / "python")))
    assert "cannot import kinesis_publishers_spark: set PYSPARK_PYTHON" in caplog.text


@pytest.mark.parametrize("python", ["no-such-python", "/bin/false", "/bin/true"])
def test_an_interpreter_that_cannot_be_asked_is_left_to_spark(
    caplog: pytest.LogCaptureFixture, python: str
) -> None:
    register(_Session(pythonExec=python))
    assert caplog.text == ""
