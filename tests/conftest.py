"""What all tests share: nothing of this machine's AWS, proxy or terminal settings, and Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports botocore or Spark; the processes that tests start inherit it.
for _name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[_name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
for _name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
    os.environ[_name] = os.devnull
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
for _name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(_name, None)

# Tests are a package, which the processes that they start import too.
_PLACES = [str(Path(__file__).parents[1]), str(Path(__file__).with_name("processes"))]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*_PLACES, *filter(None, [os.environ.get("PYTHONPATH")])]
)

import botocore.session  # noqa: E402 - after the settings that it reads

from tests import jvm, maven  # noqa: E402 - as above
from tests.schedule import (  # noqa: E402, F401 - pytest finds hooks and fixtures here
    chance,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)
from tests.servers import MariaDbServer, PostgresServer, RedisServer  # noqa: E402 - as above

os.environ["SPARK_SUBMIT_OPTS"] = jvm.SPARK_OPTIONS

# Reading the models of AWS's services takes longer than most tests: once for all clients.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)

# Time decides about nothing: the first example of a test pays for lazy imports, and machines are
# shared. pytest's own timeout stops a test that hangs.
_UNTIMED: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# The same examples in every run. `tox -e soak` searches, from the seed that it prints: where CI is
# set, too, which Hypothesis takes as a wish for the same examples.
settings.register_profile("ci", _UNTIMED, derandomize=True, database=None)
settings.register_profile("long", settings.get_profile("ci"))
settings.register_profile("soak", _UNTIMED, derandomize=False, database=None, max_examples=1000)
settings.load_profile("ci")
# With the profile of that name.
_LONG_TIMEOUT_SECONDS: Final = 900

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def pytest_itemcollected(item: pytest.Item) -> None:
    is_long = any(map(item.get_closest_marker, ("long", "deep")))
    is_limited = item.get_closest_marker("timeout") is not None
    if is_long and not is_limited and settings.get_current_profile_name() == "long":
        item.add_marker(pytest.mark.timeout(_LONG_TIMEOUT_SECONDS))


def pytest_runtest_setup(item: pytest.Function) -> None:
    # For few tests it does not pay, and others share a session.
    starts_spark = item.get_closest_marker("spark") and "spark" not in item.fixturenames
    if starts_spark and settings.get_current_profile_name() != "ci":
        jvm.make_archive()


@pytest.fixture(scope="session", autouse=True)
def _own_leases(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Who uses a stream consumer is agreed upon in files below it.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """The URL of moto's services; its tables are those of the whole process.

    One request at a time: moto looks at a condition and writes in two steps, with other requests
    between them, and what AWS does at once would be done by two of them.
    """
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[str]:
    """The URL of AWS's DynamoDB Local."""
    with maven.dynamodb_local() as url:
        yield url


@pytest.fixture(scope="session")
def dynamodb_url(request: pytest.FixtureRequest) -> str:
    """The URL of moto's DynamoDB, or of what DYNAMODB_URL names; ``local`` is DynamoDB Local."""
    fixtures = {"": "moto_url", "local": "dynamodb_local"}
    given = os.environ.get("DYNAMODB_URL", "")
    return str(request.getfixturevalue(fixtures[given])) if given in fixtures else given


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    with MariaDbServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def cloudwatch_sums(moto_url: str) -> Callable[[str], dict[str, float]]:
    """Return, for a namespace, the sum of each metric over all of its series."""
    import boto3

    def read(namespace: str) -> dict[str, float]:
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        client = boto3.client("cloudwatch", "us-east-1", endpoint_url=moto_url, **keys)
        sums: dict[str, float] = {}
        for metric in client.list_metrics(Namespace=namespace)["Metrics"]:
            points = client.get_metric_statistics(
                Namespace=namespace,
                MetricName=metric["MetricName"],
                Dimensions=metric["Dimensions"],
                StartTime="2020-01-01T00:00:00Z",
                EndTime="2040-01-01T00:00:00Z",
                Period=86_400 * 365 * 20,
                Statistics=["Sum"],
            )["Datapoints"]
            name = metric["MetricName"]
            sums[name] = sums.get(name, 0) + sum(point["Sum"] for point in points)
        client.close()
        return sums

    return read


def _one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    turn = Lock()

    def answer(environ: object, start_response: object) -> Iterable[bytes]:
        with turn:
            return list(app(environ, start_response))

    return answer


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    # A shell starts background jobs with Ctrl-C ignored, and nohup a program with SIGHUP ignored;
    # the processes that tests interrupt would inherit that.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {one: signal.getsignal(one) for one in usual}
    for one, handler in usual.items():
        if before[one] is signal.SIG_IGN:
            signal.signal(one, handler)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)
