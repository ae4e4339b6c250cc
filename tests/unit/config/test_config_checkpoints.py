"""The options of checkpoints: what they need, what contradicts, and who may not have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kinesis_publishers.config import CheckpointConfig, Properties, SqliteCheckpointConfig
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError
from kinesis_publishers_spark.aliases import parse_options

_ON = {"kinesis.streams": "orders", "kinesis.checkpoint.application": "billing"}


def _problems(options: dict[str, Any]) -> list[str]:
    try:
        Properties.parse(options)
    except ConfigErrors as error:
        return [str(problem) for problem in error.problems]
    return []


def test_the_name_of_an_application_is_all_that_checkpoints_need() -> None:
    config = CheckpointConfig.from_properties(Properties.parse(_ON))
    assert (config.application, config.store, config.interval_seconds) == ("billing", "sqlite", 10)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("store", "dynamodb"),
        ("intervalmillis", "500"),
        ("maxrecords", "5"),
        ("sqlite.path", "/tmp/x"),
        ("dynamodb.table", "table"),
        ("sql.url", "mysql://host/database"),
        ("redis.url", "redis://host"),
        ("store.maxretries", "5"),
    ],
)
def test_without_an_application_an_option_of_checkpoints_is_an_error(key: str, value: str) -> None:
    problem, *_ = _problems({"kinesis.streams": "orders", f"kinesis.checkpoint.{key}": value})
    assert problem.startswith(f"kinesis.checkpoint.{key} is set but kinesis.checkpoint.application")


def test_the_options_of_another_store_are_an_error() -> None:
    table = {"kinesis.checkpoint.dynamodb.table": "table"}
    (problem,) = _problems(_ON | table)
    assert "is for kinesis.checkpoint.store = dynamodb, which is sqlite" in problem
    assert _problems(_ON | table | {"kinesis.checkpoint.store": "dynamodb"}) == []
    (problem,) = _problems(
        _ON | {"kinesis.checkpoint.sqlite.path": "/x", "kinesis.checkpoint.store": "my.store:Store"}
    )
    assert "is for kinesis.checkpoint.store = sqlite, which is my.store:Store" in problem
    (problem,) = _problems(_ON | {"kinesis.checkpoint.redis.url": "redis://:s3cret@host"})
    assert "is for kinesis.checkpoint.store = redis, which is sqlite" in problem


@pytest.mark.parametrize("store", ["sql", "redis"])
def test_a_store_on_a_server_needs_its_url(store: str) -> None:
    (problem,) = _problems(_ON | {"kinesis.checkpoint.store": store})
    assert problem.startswith(f"kinesis.checkpoint.{store}.url is required: set it to a URL")


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("sql", "oracle://scott:s3cret@host/database"),
        ("sql", "postgresql+psycopg2://scott:s3cret@host/database"),
        ("sql", "postgresql:scott:s3cret"),
        ("sql", "postgresql://scott:s3cret@host:port/database"),
        ("sql", "mysql://scott:s3c@ret@host/database"),
        ("sql", "mysql://scott:s3c/ret@host/database"),
        ("sql", "mysql://scott:[s3cret@host/database"),
        ("sql", "sqlite://"),
        ("redis", "http://:s3cret@host"),
        ("redis", "redis://:s3cret@host:port"),
        ("redis", "redis://:s3c@ret@host"),
        ("redis", "rediss:s3cret"),
    ],
)
def test_the_url_of_something_else_is_refused_and_not_shown(store: str, url: str) -> None:
    options = {"kinesis.checkpoint.store": store, f"kinesis.checkpoint.{store}.url": url}
    (problem,) = _problems(_ON | options)
    assert problem.startswith(f"kinesis.checkpoint.{store}.url: got ***, expected a URL that")


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("sql", "postgres://scott:a%40b%2Fc@[::1]:5432/database?sslmode=require"),
        ("sql", "postgresql:///database?host=/run/postgresql"),
        ("sql", "mariadb://scott@host"),
        ("redis", "redis://:s3cret@host:6379/0?socket_timeout=5"),
        ("redis", "rediss://host"),
    ],
)
def test_the_url_of_a_server_is_taken(store: str, url: str) -> None:
    options = {"kinesis.checkpoint.store": store, f"kinesis.checkpoint.{store}.url": url}
    assert _problems(_ON | options) == []


def test_a_refused_store_does_not_make_its_options_contradictions() -> None:
    options = {"kinesis.checkpoint.store": "a b", "kinesis.checkpoint.dynamodb.table": "table"}
    (problem,) = _problems(_ON | options)
    assert "expected memory, sqlite, dynamodb" in problem


_DYNAMODB = _ON | {"kinesis.checkpoint.store": "dynamodb"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"readcapacity": "5"}, "readcapacity is for kinesis.checkpoint.dynamodb.billingmode ="),
        (
            {"billingmode": "PROVISIONED", "createtable": "false"},
            "billingmode is for kinesis.checkpoint.dynamodb.createtable = true, which is false",
        ),
        ({"tags": "team=data", "createtable": "false"}, "tags is for .*createtable = true"),
        ({"tags": "team"}, "tags.* expected key=value pairs"),
        ({"tags": "team=a,team=b"}, "tags.* expected key=value pairs"),
        ({"tags": "aws:team=a"}, "tags.* expected key=value pairs"),
        ({"billingmode": "FREE", "readcapacity": "5"}, "billingmode.* expected one of"),
    ],
)
def test_options_of_a_new_table_that_have_no_effect_are_an_error(
    options: dict[str, str], problem: str
) -> None:
    written = {f"kinesis.checkpoint.dynamodb.{key}": value for key, value in options.items()}
    (found,) = _problems(_DYNAMODB | written)
    assert re.search(problem, found)


@pytest.mark.parametrize("key", ["kinesis.checkpoint.application", "Checkpoint.Store"])
def test_spark_has_progress_of_its_own_and_says_so(key: str) -> None:
    with pytest.raises(
        ConfigErrors, match="Spark's own checkpoint is the only place for progress"
    ) as raised:
        parse_options({"streamName": "orders", key: "memory"})
    assert str(raised.value.problems[0]).startswith(key)


def test_the_file_is_where_it_is_said_to_be_or_in_the_state_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    def path(**more: str) -> Path:
        options = {f"kinesis.checkpoint.{key}": value for key, value in more.items()}
        return SqliteCheckpointConfig.from_properties(Properties.parse(_ON | options)).path

    assert path(**{"sqlite.path": "~/x.db"}) == Path("/home/me/x.db")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert path() == Path("/state/kinesis-publishers/checkpoints.sqlite3")
    for useless in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", useless)
        assert path() == Path("/home/me/.local/state/kinesis-publishers/checkpoints.sqlite3")


def test_an_unknown_home_is_a_configuration_error() -> None:
    options = _ON | {"kinesis.checkpoint.sqlite.path": "~no-user-of-this-name/x.db"}
    with pytest.raises(InvalidOptionError, match=r"kinesis\.checkpoint\.sqlite\.path"):
        SqliteCheckpointConfig.from_properties(Properties.parse(options))
