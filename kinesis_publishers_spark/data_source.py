"""The entry point for Spark: the data source ``kinesis``.

Every process of a query imports this module, a task only to find the class. Each method therefore
imports what it needs.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from kinesis_publishers_spark.boundary import at_boundary
from kinesis_publishers_spark.processes import freeze_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from kinesis_publishers import Properties
    from kinesis_publishers.errors import ConfigError
    from kinesis_publishers_spark.batch_reader import KinesisBatchReader
    from kinesis_publishers_spark.sink import KinesisBatchWriter, KinesisStreamWriter, Sink
    from kinesis_publishers_spark.stream_reader import KinesisStreamReader

freeze_spark()

_LOGGER = logging.getLogger(__name__)
# What Spark adds to the options of a table.
_PROVIDER = "provider"

# The properties whose streams were found to exist in this process.
_CHECKED: set[Properties] = set()
# Prints the version, and whether the package can be imported: a checkout may lack its dependencies.
_QUESTION = (
    "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], "
    "all(map(u.find_spec, ('kinesis_publishers_spark', 'aiobotocore'))))"
)


class KinesisDataSource(DataSource):
    """Amazon Kinesis Data Streams for ``readStream`` and ``read``, ``writeStream`` and ``write``.

    Args:
        options: the options of the query; see ``docs/configuration.md``.

    Raises:
        ConfigErrors: lists every problem of the options.
    """

    allow: ClassVar[Sequence[str]] = ()
    """What :func:`register` permits of the values that name code, files or variables."""

    @at_boundary
    def __init__(self, options: dict[str, str]) -> None:
        from kinesis_publishers import SystemClock
        from kinesis_publishers.config import (
            SourceConfig,
            WatermarkConfig,
        )
        from kinesis_publishers.errors import ConfigError
        from kinesis_publishers.readers import (
            publisher_factory_class,
            register_consumers,
            with_region,
        )
        from kinesis_publishers_spark.aliases import ALLOW_VARIABLE, OF_WRITE_STREAM, parse_options
        from kinesis_publishers_spark.options import SparkConfig
        from kinesis_publishers_spark.partitions import TaskReader

        super().__init__(options)
        given = {name.lower(): value for name, value in options.items()}
        if _PROVIDER in given:
            raise ConfigError(
                "CREATE TABLE ... USING kinesis is not possible: Spark does not give a Python "
                "source the options of a table. Use CREATE TEMPORARY VIEW ... USING kinesis "
                "OPTIONS (...), or spark.read and spark.readStream."
            )
        # Then it is a sink, and refuses to be a source.
        self._of_sink = [name for key, name in OF_WRITE_STREAM.items() if key in given]
        self._loaded_at = SystemClock().now()
        # Checked here: a mistake is reported at load(), before the first micro-batch.
        allow = [one.strip() for one in os.environ.get(ALLOW_VARIABLE, "").split(",")]
        parse = partial(parse_options, given, allow=[*self.allow, *allow])
        # A column may name the streams of what is written.
        self._lack: ConfigError | None = None
        try:
            properties = parse()
        except ConfigError as lack:
            try:
                properties = parse(complete=False)
            except ConfigError:
                raise lack from None
            self._lack = lack
        self._written = properties
        if idle := properties.given_keys(WatermarkConfig.options()):
            _LOGGER.warning("Spark has watermarks of its own: %s has no effect", ", ".join(idle))
            properties = properties.with_values(dict.fromkeys(WatermarkConfig.options()))
        SourceConfig.from_properties(properties)
        publisher_factory_class(properties)
        self._config = SparkConfig.from_properties(properties)
        # Executors may have another environment than the driver, so the region travels with the
        # properties. The ARNs of the consumers that EAGER registers travel too: this runs once.
        properties = with_region(properties)
        self._properties = properties if self._of_sink else register_consumers(properties)
        # Registration checks the streams, too.
        self._is_checked = self._properties is not properties
        self._tasks = TaskReader.of(self._properties)
        self._has_reader = False

    def __getstate__(self) -> dict[str, Any]:
        # Afterwards Spark pickles it for tasks, which need only its class.
        return {} if self._has_reader else self.__dict__

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "kinesis"

    @at_boundary
    def schema(self) -> str:
        """Return the columns in Spark's DDL; Spark asks once, in ``load()``.

        Raises:
            KinesisPublishersError: the streams cannot be read, as :func:`check_streams` says.
        """
        from kinesis_publishers.readers import check_streams
        from kinesis_publishers_spark.schema import Columns

        self._check_reading()
        # Not in the constructor, which also runs where nothing is read.
        if not self._is_checked:
            check_streams(self._properties)
            self._is_checked = True
        return Columns.of(self._config).ddl

    def streamReader(self, schema: StructType) -> KinesisStreamReader:
        """Return a reader for one query; Spark calls this in several processes."""
        from kinesis_publishers.errors import ConfigError
        from kinesis_publishers_spark.stream_reader import (
            KinesisStreamReader,
            make_session,
            refuse_ending_position,
        )

        self._has_reader = True
        try:
            refuse_ending_position(self._written)
            self._check(schema)
            make = make_session
        except ConfigError as problem:
            # The reader's first call raises it. Here, Spark would stop a reader that does not
            # exist, and the user would see an unbound variable of Spark instead.
            make = partial(_refuse, problem)
        return KinesisStreamReader(self._properties, self._config, make, tasks=self._tasks)

    @at_boundary
    def reader(self, schema: StructType) -> KinesisBatchReader:
        """Return a reader of the records between two positions."""
        from kinesis_publishers_spark.batch_reader import KinesisBatchReader, checked_bounds

        self._has_reader = True
        self._check(schema)
        checked_bounds(self._written, loaded_at=self._loaded_at)
        shared = self._properties, self._config, self._loaded_at
        return KinesisBatchReader(*shared, tasks=self._tasks)

    @at_boundary
    def writer(self, schema: StructType, overwrite: bool) -> KinesisBatchWriter:
        """Return the writer of ``df.write``."""
        from kinesis_publishers.errors import ConfigError
        from kinesis_publishers_spark.sink import KinesisBatchWriter

        if overwrite:
            raise ConfigError("a stream cannot be overwritten: use mode('append')")
        return KinesisBatchWriter(self._sink(schema))

    @at_boundary
    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisStreamWriter:
        """Return the writer of a micro-batch. Spark calls this twice for each."""
        from kinesis_publishers_spark.sink import KinesisStreamWriter

        # In the output mode complete Spark asks to overwrite: then the whole result is written
        # again, as to a topic of Kafka.
        return KinesisStreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> Sink:
        from kinesis_publishers.config import selected_streams
        from kinesis_publishers.readers import check_streams
        from kinesis_publishers_spark.sink import Sink

        sink = Sink.of(self._properties, schema)
        # Spark reuses a process for each micro-batch.
        if self._properties not in _CHECKED and selected_streams(self._properties):
            check_streams(self._properties)
            _CHECKED.add(self._properties)
        return sink

    def _check(self, schema: StructType) -> None:
        from kinesis_publishers_spark.schema import Columns, check_schema

        self._check_reading()
        check_schema(schema, Columns.of(self._config))

    def _check_reading(self) -> None:
        from kinesis_publishers.errors import ConfigError, ConfigErrors

        if self._of_sink:
            advice = "is an option of writeStream: remove it from the options of the source"
            raise ConfigErrors([ConfigError(f"{name} {advice}") for name in self._of_sink])
        if self._lack is not None:
            raise self._lack


def _refuse(problem: Exception, *_: object) -> NoReturn:
    raise problem


def register(spark: SparkSession, *, name: str = "kinesis", allow: Sequence[str] = ()) -> None:
    """Make ``format(name)`` known to ``spark``.

    Spark discovers ``format("kinesis")`` where this package is installed. Call this only to choose
    another name, if a jar has a source of the same name and takes precedence, or to permit values
    that options may not have by default.

    Args:
        spark: the session, over Spark Connect or not.
        name: the name for ``format(...)``.
        allow: what options may name: ``module:Class``, the dotted name of an exception, a file, or
            a pattern of them (``my_package.*``); see ``docs/security.md``. It applies to every
            query of this session with this format, SQL included.
    """
    from pyspark.errors import AnalysisException

    from kinesis_publishers.errors import ConfigError

    is_plain = name == "kinesis" and not allow
    _compare_interpreters(getattr(spark, "_sc", None))
    own = {"allow": tuple(allow), "name": classmethod(lambda _: name)}
    try:
        # A class that is in no module is pickled by value, with its own attributes.
        spark.dataSource.register(
            KinesisDataSource if is_plain else type("NamedSource", (KinesisDataSource,), own)
        )
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark 4.0 refuses the name of a source that it has discovered; later versions replace it.
        if is_plain and spark.version.startswith("4.0."):
            return
        raise ConfigError(
            f"format({name!r}) is another data source in this session, for example from a jar on "
            "its class path: choose another name with register(spark, name=...)"
        ) from error


def _compare_interpreters(context: SparkContext | None) -> None:
    """Warn if the Python of Spark's workers cannot run the source.

    Over Spark Connect there is no context: the workers belong to the server.
    """
    import shutil
    import subprocess

    workers = None if context is None else shutil.which(context.pythonExec)
    if context is None or workers is None or workers == sys.executable:
        return
    try:
        question = [workers, "-c", _QUESTION]
        answer = subprocess.run(question, capture_output=True, text=True, timeout=30, check=True)
        # Its sitecustomize may print before.
        *_, version, has_package = answer.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return
    own = "{}.{}".format(*sys.version_info)
    if version != own:
        lack = f"is Python {version}, and this driver has {own}"
    elif has_package == "False" and not context._python_includes:  # what addPyFile sends
        lack = "cannot import kinesis_publishers_spark"
    else:
        return
    _LOGGER.warning(
        "Spark's workers run %s, which %s: set PYSPARK_PYTHON=%s before the session is created, or "
        "install the package there.",
        workers,
        lack,
        sys.executable,
    )
