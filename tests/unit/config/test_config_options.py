"""Every key of the specification: its default, its unit, and what its value becomes."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from kinesis_publishers.config import Properties
from kinesis_publishers.config.catalogue import (
    all_declarations,
    all_options,
    find_bare_option,
    find_option,
)
from kinesis_publishers.errors import ConfigErrors

# Written from the specification, not from the declarations: key, default, a text, what it becomes.
_RETRIES = {
    "stream.describe": (50, 2000, 5000, 1.5),
    "list.shards": (10, 1000, 5000, 1.5),
    "stream.describestreamconsumer": (50, 2000, 5000, 1.5),
    "stream.liststreamconsumers": (10, 200, 1000, 1.5),
    "stream.registerstreamconsumer": (10, 500, 2000, 1.5),
    "stream.deregisterstreamconsumer": (10, 500, 2000, 1.5),
    "shard.subscribetoshard": (10, 1000, 2000, 1.5),
    "shard.getrecords": (3, 300, 1000, 1.5),
    "shard.getiterator": (3, 300, 1000, 1.5),
}
_FLIP = [
    ("stream.recordpublisher", "POLLING", "custom.module:Factory", "custom.module:Factory"),
    ("stream.efo.consumername", None, "my-consumer_1.a", "my-consumer_1.a"),
    ("stream.efo.registration", "LAZY", "eager", "EAGER"),
    ("stream.efo.http-client.max-concurrency", 10000, "7", 7),
    ("stream.efo.http-client.read-timeout", 360000, "5m", 300_000),
    ("stream.initpos", "LATEST", "trim_horizon", "TRIM_HORIZON"),
    ("stream.initpos.timestamp", None, "1459799926.480", "1459799926.480"),
    ("stream.initpos.timestamp.format", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "yyyyMMdd", "yyyyMMdd"),
    ("stream.registerstreamconsumer.timeout", 60, "2m", 120),
    ("stream.deregisterstreamconsumer.timeout", 60, "1500ms", 1.5),
    ("shard.subscribetoshard.timeout", 60, "30", 30),
    ("shard.getrecords.maxrecordcount", 10000, "1", 1),
    ("shard.getrecords.intervalmillis", 200, "0.25s", 250),
    ("shard.discovery.intervalmillis", 10000, "30s", 30_000),
    ("shard.adaptivereads", False, "TRUE", True),
    ("shard.idle.interval", -1, "2m", 120_000),
    ("watermark.sync.interval", 30000, "1s", 1000),
    ("watermark.lookahead.millis", 0, "7", 7),
    ("watermark.sync.queue.capacity", 100, "5", 5),
    *(
        row
        for prefix, (retries, base, longest, exponent) in _RETRIES.items()
        for row in (
            (f"{prefix}.maxretries", retries, "4", 4),
            (f"{prefix}.backoff.base", base, "1s", 1000),
            (f"{prefix}.backoff.max", longest, "2500", 2500),
            (f"{prefix}.backoff.expconst", exponent, "2.5", 2.5),
        )
    ),
]
_OURS = [
    ("streams", None, "a,b", "a,b"),
    ("stream.efo.deregister", "created", "NEVER", "never"),
    ("shard.getrecords.encoding", "auto", "CBOR", "cbor"),
    ("stream.efo.http-version", "auto", "1.1", "1.1"),
    ("stream.initpos.shards", (), "{}", ()),
    ("stream.endpos", "LATEST", "latest", "LATEST"),
    ("stream.endpos.timestamp", None, "1459799926.480", "1459799926.480"),
    ("stream.endpos.timestamp.format", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "yyyyMMdd", "yyyyMMdd"),
    ("stream.endpos.shards", (), "{}", ()),
    ("retry.outagemillis", 300_000, "1h", 3_600_000),
    ("pending.maxrecords", 200000, "1", 1),
    ("pending.maxbytes", 64 * 1024 * 1024, "10MB", 10_000_000),
    ("pending.waittimeoutmillis", 30000, "1m", 60_000),
    ("processing.slow-after", 60, "5m", 300),
    ("shard.limits", "aws", "AWS", "aws"),
    ("shard.order", "parents-first", "None", "none"),
    ("aggregation", "auto", "OFF", "off"),
    ("aggregation.on-invalid", "plain", "Dead-Letter", "dead-letter"),
    ("failondataloss", True, "False", False),
    ("metrics.sinks", ("log",), "summary, my.module:Sink", ("summary", "my.module:Sink")),
    ("progress", False, "true", True),
    ("metrics.level", "shard", "STREAM", "stream"),
    ("metrics.traces", True, "false", False),
    ("metrics.summary.intervalmillis", 60000, "10s", 10_000),
    ("metrics.prometheus.port", 9464, "9000", 9000),
    ("metrics.prometheus.host", "127.0.0.1", "0.0.0.0", "0.0.0.0"),
    ("metrics.cloudwatch.namespace", "KinesisPublishers", "my/app", "my/app"),
    ("metrics.cloudwatch.intervalmillis", 60000, "10s", 10_000),
    ("metrics.cloudwatch.endpoint", None, "http://localhost:5000", "http://localhost:5000"),
    ("watermark.assigner", "ARRIVAL", "my.module:Assigner", "my.module:Assigner"),
    ("watermark.disordermillis", 0, "5s", 5_000),
    ("spark.planner", "auto", "ranges", "ranges"),
    ("spark.alignment", "arrival", "None", "none"),
    ("spark.alignment.patience", 30_000.0, "1m", 60_000.0),
    ("spark.parallelism", None, "8", 8),
    ("spark.maxrecordspertrigger", None, "1000", 1000),
    ("spark.maxbytespertrigger", None, "2MiB", 2_097_152),
    ("spark.targetbatchduration", 10_000.0, "5s", 5_000.0),
    ("spark.targetbatchbytes", None, "64MiB", 64 * 1024 * 1024),
    ("spark.minrecordspertrigger", None, "1000", 1000),
    ("spark.maxtriggerdelay", 900_000.0, "30s", 30_000.0),
    ("spark.maxrecordsperpartition", None, "1000", 1000),
    ("spark.includemetadata", False, "true", True),
    ("spark.includebatchmarker", False, "true", True),
    ("spark.compression", None, "gzip", "gzip"),
    ("checkpoint.application", None, "billing_1.a-b", "billing_1.a-b"),
    ("checkpoint.store", "sqlite", "DynamoDB", "dynamodb"),
    ("checkpoint.intervalmillis", 10_000, "1m", 60_000),
    ("checkpoint.maxrecords", 100_000, "1", 1),
    ("checkpoint.sqlite.path", None, "~/x", "~/x"),
    ("checkpoint.dynamodb.table", "kinesis-publishers-checkpoints", "t.1", "t.1"),
    ("checkpoint.dynamodb.endpoint", None, "http://localhost:8000", "http://localhost:8000"),
    ("checkpoint.dynamodb.createtable", True, "False", False),
    ("checkpoint.dynamodb.billingmode", "PAY_PER_REQUEST", "provisioned", "PROVISIONED"),
    ("checkpoint.dynamodb.readcapacity", 10, "5", 5),
    ("checkpoint.dynamodb.writecapacity", 10, "5", 5),
    (
        "checkpoint.dynamodb.tags",
        (),
        "team=data, path=a=b/c",
        (("team", "data"), ("path", "a=b/c")),
    ),
    ("checkpoint.sql.url", None, "mysql://u:p@host/db", "mysql://u:p@host/db"),
    ("checkpoint.sql.table", "kinesis_checkpoints", "ours.t1", "ours.t1"),
    ("checkpoint.sql.createtable", True, "False", False),
    ("checkpoint.redis.url", None, "rediss://:p@host:1/2", "rediss://:p@host:1/2"),
    ("checkpoint.redis.prefix", "kinesis-publishers", "a:b", "a:b"),
    ("checkpoint.store.maxretries", 10, "4", 4),
    ("checkpoint.store.backoff.base", 200, "1s", 1000),
    ("checkpoint.store.backoff.max", 5000, "2500", 2500),
    ("checkpoint.store.backoff.expconst", 1.5, "2.5", 2.5),
    ("shard.assigner", None, "manual", "MANUAL"),
    ("shards", None, "orders:shardId-1", "orders:shardId-1"),
    ("lease.enabled", False, "true", True),
    ("lease.workerid", None, "host-1/7", "host-1/7"),
    ("lease.failovermillis", 10_000, "30s", 30_000),
    ("lease.handovermillis", 30_000, "1m", 60_000),
    ("lease.maxleasesforworker", None, "8", 8),
    ("lease.format", None, "KCL", "kcl"),
    ("producer.lingermillis", 100, "1s", 1000),
    ("producer.recordttlmillis", 300_000, "30s", 30_000),
    ("producer.buffer.maxrecords", 50_000, "1", 1),
    ("producer.buffer.maxbytes", 64 * 1024 * 1024, "10MB", 10_000_000),
    ("producer.buffer.whenfull", "wait", "Fail", "fail"),
    ("producer.spill.path", None, "/var/spool/orders", "/var/spool/orders"),
    ("producer.spill.maxbytes", 1024 * 1024 * 1024, "10MB", 10_000_000),
    ("producer.ordering", "none", "KEY", "key"),
    ("producer.batch.maxrecords", 500, "1", 1),
    ("producer.batch.maxbytes", 5 * 1024 * 1024, "10MiB", 10 * 1024 * 1024),
    ("producer.maxinflight", 24, "1", 1),
    ("producer.requesttimeoutmillis", 10_000, "6s", 6000),
    ("producer.aggregation", False, "True", True),
    ("producer.aggregation.maxbytes", 51_200, "1MiB", 1024 * 1024),
    ("producer.aggregation.maxrecords", 2**32 - 1, "100", 100),
    ("producer.aggregation.outerkey", "kpl", "FIRST", "first"),
    ("producer.ratelimit", 100, "150", 150),
    ("producer.ratelimit.adaptive", True, "false", False),
    ("producer.failonerror", False, "true", True),
    ("producer.backoff.base", 100, "1s", 1000),
    ("producer.backoff.max", 5000, "1m", 60_000),
    ("producer.partitioner", "RANDOM", "a.b:C", "a.b:C"),
]
_CREDENTIALS = [
    ("", None, "auto", "AUTO"),
    (".basic.accesskeyid", None, "AKIA", "AKIA"),
    (".basic.secretkey", None, "s", "s"),
    (".basic.sessiontoken", None, "t", "t"),
    (".profile.path", None, "~/x", "~/x"),
    (".profile.name", None, "dev", "dev"),
    (".role.arn", None, "arn:aws:iam::123456789012:role/a/b", "arn:aws:iam::123456789012:role/a/b"),
    (".role.sessionName", None, "me", "me"),
    (".role.externalId", None, "x-1", "x-1"),
    (".role.stsEndpoint", None, "http://localhost:5000", "http://localhost:5000"),
    (".role.provider", None, "env_var", "ENV_VAR"),
    (".webIdentityToken.file", None, "/t", "/t"),
    (".custom.class", None, "a.b:C", "a.b:C"),
]
_AWS = [
    ("aws.region", None, "eu-west-1", "eu-west-1"),
    ("aws.endpoint", None, "https://k.example/x", "https://k.example/x"),
    ("aws.cabundle", None, "/etc/ca.pem", "/etc/ca.pem"),
    *((f"aws.credentials.provider{key}", *rest) for key, *rest in _CREDENTIALS),
]
_CASES = [*_FLIP, *_OURS, *_AWS]
_IDS = [case[0] for case in _CASES]
TEXTS = {key: text for key, _, text, _ in _CASES}


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def test_every_key_is_declared_exactly_once() -> None:
    keys = [option.key for option in all_options()]
    assert sorted(keys) == sorted(_IDS)


def test_the_families_are_declared() -> None:
    families = {option.key for option in all_declarations()} - set(_IDS)
    assert families == {
        "custom.<key>",
        "stream.efo.consumerarn.<stream>",
        "shard.consumer.error.recoverable[i].exception",
    }


@pytest.mark.parametrize(("key", "default", "text", "value"), _CASES, ids=_IDS)
def test_the_default_is_that_of_the_specification(
    key: str, default: object, text: str, value: object
) -> None:
    option = find_bare_option(key)
    assert option is not None
    assert _plain(Properties.parse({}, complete=False).get(option)) == default


@pytest.mark.parametrize(("key", "default", "text", "value"), _CASES, ids=_IDS)
def test_a_text_is_parsed(key: str, default: object, text: str, value: object) -> None:
    option = find_bare_option(key.upper())
    assert option is not None
    assert _plain(option.parse(text)) == value


@pytest.mark.parametrize("key", [case[0] for case in _FLIP + _OURS])
def test_a_key_is_accepted_under_both_prefixes_and_not_without_one(key: str) -> None:
    assert find_option(f"kinesis.{key}") == find_option(f"flink.{key}") == find_bare_option(key)
    assert find_option(key) is None


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("RecordMaxBufferedTime", "producer.lingermillis", 250),
        ("RecordTtl", "producer.recordttlmillis", 2_000_000),
        ("CollectionMaxCount", "producer.batch.maxrecords", 100),
        ("CollectionMaxSize", "producer.batch.maxbytes", 60_000),
        ("MaxConnections", "producer.maxinflight", 7),
        ("RequestTimeout", "producer.requesttimeoutmillis", 7_000),
        ("AggregationEnabled", "producer.aggregation", True),
        ("AggregationMaxSize", "producer.aggregation.maxbytes", 70_000),
        ("AggregationMaxCount", "producer.aggregation.maxrecords", 5),
        ("RateLimit", "producer.ratelimit", 150),
        ("FailIfThrottled", "producer.failonerror", True),
    ],
)
def test_a_name_of_the_kpl_is_accepted(name: str, key: str, value: Any) -> None:
    option = find_bare_option(key)
    assert option is not None
    properties = Properties.parse({f"kinesis.producer.{name}": value}, complete=False)
    assert properties.get(option) == value


@pytest.mark.parametrize("option", all_declarations(), ids=lambda option: option.key)
def test_every_declaration_explains_itself(option) -> None:
    assert option.doc.endswith(".")
    assert option.parser.accepts
    assert option.section


@pytest.mark.parametrize(
    "option",
    [option for option in all_options() if option.unit == "ms"],
    ids=lambda option: option.key,
)
@pytest.mark.parametrize(
    "value", ["-5", "5 parsecs", "", "abc", "nan", "inf", "64MiB", True, "1_0"]
)
def test_a_duration_refuses_what_is_none(option, value: str) -> None:
    with pytest.raises(ConfigErrors, match="expected a duration in ms"):
        Properties.parse({option.full_key: value}, complete=False)
