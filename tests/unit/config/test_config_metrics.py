"""The options of metrics: which texts are accepted, and what they become."""

from __future__ import annotations

import pytest

from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.errors import ConfigErrors


def config_of(**values: str) -> MetricsConfig:
    keys = {f"kinesis.metrics.{key}": value for key, value in values.items()}
    return MetricsConfig.from_properties(Properties.parse(keys, complete=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log", ("log",)),
        ("None", ()),
        ("CloudWatch , log", ("cloudwatch", "log")),
        ("log,LOG,opentelemetry", ("log", "opentelemetry")),
        ("summary,my_pkg.metrics:Sink", ("summary", "my_pkg.metrics:Sink")),
    ],
)
def test_sinks_are_a_list_in_which_the_case_of_a_class_counts(
    text: str, expected: tuple[str, ...]
) -> None:
    assert config_of(sinks=text).sinks == expected


@pytest.mark.parametrize("text", ["", ",", "log,", "graphite", "none,log", "a:b:c", "log summary"])
def test_what_is_no_list_of_sinks_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ConfigErrors, match="log, summary, opentelemetry, prometheus, cloudwatch"):
        config_of(sinks=text)


@pytest.mark.parametrize("namespace", ["AWS/Kinesis", ":x", "a b", "x" * 256])
def test_a_namespace_that_cloudwatch_would_refuse_is_refused_at_once(namespace: str) -> None:
    with pytest.raises(ConfigErrors, match=r"kinesis\.metrics\.cloudwatch\.namespace"):
        config_of(**{"cloudwatch.namespace": namespace})
