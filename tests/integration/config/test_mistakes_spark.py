# ruff: noqa: E501 - the texts are as they are shown
"""What the screen shows after a mistake in a program for Spark: approved texts.

The screen is standard output and standard error together. Spark's own part of it is left out: what
the JVM logs (log4j, which repeats the error with the stack of the JVM), the frames of pyspark and
py4j in the traceback, and the words around our message in the exception that Spark makes of it.
Nothing else may be there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from tests.integration.config.screen import Screen, register_consumers, without_marks

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]

_SESSION = Path(__file__).with_name("spark_session.py")
_ROOT = Path(__file__).parents[3]
_PREAMBLE = """\
from pyspark.sql import SparkSession, functions as F
from kinesis_publishers_spark import register
spark = SparkSession.builder.getOrCreate()
register(spark)
keys = dict(awsAccessKeyId="a", awsSecretKey="b")
here = dict(region="us-east-1", endpointUrl=ENDPOINT)
source = spark.readStream.format("kinesis")
lamps = spark.createDataFrame([("customer-1", "a lamp")], "partitionKey string, data string")
def write(frame, **options):
    frame.write.format("kinesis").options(streamName="orders", **keys, **here, **options).mode("append").save()
def read(frame):
    frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
def orders(stream="orders", **options):
    options = keys | here | options
    return source.options(streamName=stream, startingPosition="TRIM_HORIZON", **options).load()
"""

_PROGRAMS = {
    "a typo": (
        "orders(maxRecordPerTriger=5)",
        (
            "ConfigErrors: 1 configuration problem:\n"
            "  - maxrecordpertriger: unknown option; did you mean maxRecordsPerTrigger?"
        ),
    ),
    "no region": (
        "source.options(streamName='orders').load()",
        (
            "MissingOptionError: no region: set aws.region (as eu-west-1), or give the stream by its "
            "ARN, or set AWS_REGION in the environment"
        ),
    ),
    "a wrong stream": (
        "orders('ordres')",
        (
            "StreamNotFoundError: DescribeStreamSummary of ordres: check the stream's name, the region "
            "and the account (ResourceNotFoundException: Stream ordres under account 123456789012 not "
            "found.)"
        ),
    ),
    "no credentials": (
        "source.options(streamName='orders', **here).load()",
        (
            "CredentialsError: DescribeStreamSummary of orders: no credentials: set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or aws.credentials.provider; a local server "
            "takes any"
        ),
    ),
    "no permission": (
        "read(orders('denied'))",
        (
            "AccessDeniedError: GetRecords of denied/shardId-000000000000: allow kinesis:GetRecords in "
            "the IAM policy (AccessDeniedException: User: arn:aws:iam::123456789012:user/me is not "
            "authorized)"
        ),
    ),
    "a full list of consumers": (
        "read(orders(consumerType='EFO', consumerName='mine'))",
        (
            "LimitExceededError: The stream consumer mine cannot be registered: remove one that is not "
            "used (kinesis-publishers consumers deregister NAME), share one by its name, or read with "
            "kinesis.stream.recordpublisher = POLLING. arn:aws:kinesis:us-east-1:123456789012:"
            "stream/orders takes 20 of them (50 with on-demand advantage), 5 of which may be CREATING "
            "at a time. It has 20 consumers: "
            + ", ".join(f"consumer-{number:02} (ACTIVE)" for number in range(20))
            + ". (RegisterStreamConsumer of mine on arn:aws:kinesis:us-east-1:123456789012:"
            "stream/orders: a limit of the account was reached (LimitExceededException: Stream orders "
            "under account 123456789012 has its 20 registered consumers already.))"
        ),
    ),
    "an option of the sink": (
        "write(lamps, lingermilis=5)",
        (
            "ConfigErrors: 1 configuration problem:\n"
            "  - lingermilis: unknown option; did you mean kinesis.producer.lingermillis?"
        ),
    ),
    "a missing column": (
        "write(lamps.drop('data'))",
        (
            "ConfigError: the column data is missing: the sink writes the columns data (binary or "
            "string), partitionKey, explicitHashKey and streamName (string)"
        ),
    ),
    "a column too many": (
        "write(lamps.withColumn('amount', F.lit(1)))",
        (
            "ConfigError: the column amount is not one that the sink writes: select(...) the columns data "
            "(binary or string), partitionKey, explicitHashKey and streamName (string), and pack "
            "others into data, as with to_json(struct(...))"
        ),
    ),
    "a column's type": (
        "write(lamps.withColumn('data', F.lit(1)))",
        (
            "ConfigError: the column data is of type int, and must be binary or string: cast it, or "
            "make a text of it, as with to_json(...)"
        ),
    ),
}
_OF_THE_PERSON = {
    "foreachBatch": """\
def each(frame, number):
    frame.collect()[0]["data"]["id"]
orders().writeStream.foreachBatch(each).trigger(availableNow=True).start().awaitTermination()
""",
    "a UDF": """\
@F.udf("string")
def parse(data):
    return data["id"]
read(orders().select(parse("data")))
""",
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(evolve(Limits.off(), consumers_per_stream=20)) as server:
        for name in ("orders", "denied"):
            server.create_stream(name)
        server.put_many("orders", [("customer-1", b"a lamp")])
        register_consumers(server, 20)
        server.add_fault(
            Fault(
                "GetRecords",
                "error",
                code="AccessDeniedException",
                message="User: arn:aws:iam::123456789012:user/me is not authorized",
                stream="denied",
                times=None,
            )
        )
        yield server


@pytest.fixture
def screen(server: LocalKinesis, tmp_path: Path) -> Screen:
    return Screen(server, tmp_path)


@pytest.fixture(scope="module")
def shown(server: LocalKinesis, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is shown of each program, in one session: starting one takes most of the time."""
    folder = tmp_path_factory.mktemp("mistakes")
    texts = {name: program for name, (program, _) in _PROGRAMS.items()} | _OF_THE_PERSON
    for name, program in texts.items():
        text = f"ENDPOINT = {server.endpoint_url!r}\n{_PREAMBLE}{program}\n"
        (folder / name).write_text(text)
    whole = Screen(server, folder).spark(str(_SESSION), *(str(folder / name) for name in texts))
    sections = re.split(r"^===== (.*)\n", whole, flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize("mistake", _PROGRAMS)
def test_in_a_program(shown: dict[str, str], mistake: str) -> None:
    program, message = _PROGRAMS[mistake]
    whole = shown[mistake]
    said = f"kinesis_publishers.errors.{message}"
    # The line of the person's first, then the way through Spark, then the message: once.
    assert frames_of(whole)[0] == f"{mistake}:{len(_PREAMBLE.splitlines()) + 2}: {program}"
    before, _, after = whole.partition(said)
    assert whole.count("kinesis_publishers") == whole.count(said) == 1
    assert before.count("Traceback") == 1
    assert before.splitlines()[-1].startswith("pyspark.errors.exceptions.")
    assert re.match(r"\n SQLSTATE: \w+", after)
    assert len(said.splitlines()) <= 10


@pytest.mark.parametrize(
    ("mistake", "line"),
    [("foreachBatch", 'frame.collect()[0]["data"]["id"]'), ("a UDF", 'return data["id"]')],
)
def test_in_a_function_of_the_person_s(shown: dict[str, str], mistake: str, line: str) -> None:
    whole = shown[mistake]
    assert whole.startswith("Traceback (most recent call last):\n")
    assert line in whole
    assert "TypeError: byte indices must be integers or slices, not str" in whole
    assert "kinesis_publishers" not in whole  # It is between the person and Spark.


def test_nothing_else_is_shown(shown: dict[str, str]) -> None:
    assert all(whole.startswith("Traceback") for name, whole in shown.items() if name != "end")
    assert shown["end"] == ""


_OTHER_PYTHON = """\
import sys
sys.path.insert(0, ROOT)
from pyspark.sql import SparkSession
from kinesis_publishers_spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sys.stderr.write("===== register\\n")
register(spark)
spark.readStream.format("kinesis").options(streamName="orders", region="us-east-1").load()
"""


def test_a_python_of_the_workers_that_lacks_the_package(screen: Screen, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    other = tmp_path / "other" / "bin" / "python"
    # Spark's workers have it.
    del screen.environ["PYTHONPATH"]
    screen.environ["PYSPARK_PYTHON"] = str(other)
    (tmp_path / "mine.py").write_text(f"ROOT = {str(_ROOT)!r}\n{_OTHER_PYTHON}")
    _, shown = screen.spark(str(tmp_path / "mine.py"), status=1).split("===== register\n")
    warning, traceback = shown.split("Traceback (most recent call last):\n", 1)
    assert warning == (
        "Spark's workers run other/bin/python, which cannot import kinesis_publishers_spark: set "
        f"PYSPARK_PYTHON={sys.executable} before the session is created, or install the package "
        "there.\n"
    )
    # What the workers lack is Spark's to say, as the last line of it.
    assert "\nModuleNotFoundError: No module named " in traceback
    assert traceback.count("PYSPARK_PYTHON") == 0


_ENDLESS = """\
def show(frame, number):
    print(f"{frame.count()} record", flush=True)
query = orders().writeStream.foreachBatch(show).start()
query.awaitTermination()
"""


@pytest.mark.soak
def test_ctrl_c_ends_a_query_without_a_word_of_ours(
    screen: Screen, server: LocalKinesis, tmp_path: Path
) -> None:
    session = (
        'SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")'
        '.config("spark.ui.showConsoleProgress", "false").getOrCreate()'
    )
    preamble = _PREAMBLE.replace("SparkSession.builder.getOrCreate()", session)
    quiet = 'spark.sparkContext.setLogLevel("OFF")\n'
    file = tmp_path / "mine.py"
    file.write_text(f"ENDPOINT = {server.endpoint_url!r}\n{preamble}{quiet}{_ENDLESS}")
    with subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=screen.environ,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "1 record\n":
                break
        # A terminal sends it to all processes of the program.
        os.killpg(child.pid, signal.SIGINT)
        shown = screen.without_chance(child.communicate(timeout=120)[0])
    assert frames_of(without_marks(shown)) == [
        f"mine.py:{len(preamble.splitlines()) + 6}: query.awaitTermination()"
    ]
    assert shown.splitlines()[-1] == "KeyboardInterrupt"
    assert "kinesis_publishers" not in shown


def frames_of(whole: str) -> list[str]:
    """Return the frames of a traceback, except for Spark's."""
    found = re.findall(r'^  File "([^"]*)", line (\d+), in .*\n +(.*)\n', whole, re.MULTILINE)
    return [": ".join((f"{file}:{line}", text)) for file, line, text in found if "/" not in file]
