"""Every event is one sentence for people and fields for machines, in text and in JSON."""

from __future__ import annotations

import json
import logging
import pickle
import re
from datetime import UTC, datetime
from typing import Any, get_type_hints

import attrs
import pytest

from kinesis_publishers import Event, SequenceNumber, ShardKey, StartingPosition, log_event
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.events import (
    EVENT_TYPES,
    LOG_FORMAT_VARIABLE,
    CallbackDelayed,
    FetcherStopped,
    JsonLogFormatter,
    LeaseReleased,
    RecordsFailed,
    RecordsLate,
    ShardStopped,
    log_formatter,
)
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard

SHARD = sample_shard(3).key
POSITION = StartingPosition.after(SequenceNumber("4968"))
_OF_RECORDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_VALUES: dict[Any, Any] = {
    ShardKey: SHARD,
    StartingPosition: POSITION,
    SequenceNumber: SequenceNumber("4968", 7),
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    tuple[str, ...]: ("first", "second"),
    bool: True,
    int: 2,
    float: 2.5,
}


def sample(event_type: type[Event], *, is_sparse: bool) -> Event:
    """Return an event with every field, or with ``None`` wherever that is allowed."""
    hints = get_type_hints(event_type)
    values = {}
    for one in attrs.fields(event_type):
        first, *others = getattr(hints[one.name], "__args__", None) or [hints[one.name]]
        kind = hints[one.name] if hints[one.name] in _VALUES else first
        text = f"{SHARD}: {one.name}." if one.name == "message" else f"the {one.name}"
        of_arns = {"stream_arn": STREAM_ARN, "consumer_arn": f"{STREAM_ARN}/consumer/reports:1"}
        values[one.name] = (
            None
            if is_sparse and type(None) in others
            else of_arns.get(one.name) or _VALUES.get(kind, text)
        )
    return event_type(**values)


def record_of(event: Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    with caplog.at_level(logging.DEBUG, "kinesis_publishers"):
        log_event(event)
    (record,) = caplog.records
    return record


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_event_is_one_sentence_that_names_its_stream_and_shard(
    event_type: type[Event], is_sparse: bool
) -> None:
    event = sample(event_type, is_sparse=is_sparse)
    sentence = str(event)
    assert re.fullmatch(r"[^\n]+[^.]\.", sentence)
    for no_words in ("=", "None", "{", "}", "#", event_type.__name__, "  ", " ,"):
        assert no_words not in sentence
    fields = event.fields()
    assert "stream" not in fields or fields["stream"] in sentence
    assert fields.get("shard") is None or str(SHARD) in sentence
    if "message" in attrs.fields_dict(event_type):
        assert f"{SHARD}: message" in sentence


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_event_is_json_on_one_line_with_all_its_fields(
    event_type: type[Event], is_sparse: bool, caplog: pytest.LogCaptureFixture
) -> None:
    event = sample(event_type, is_sparse=is_sparse)
    fields = event.fields()
    assert not fields.keys() & (_OF_RECORDS | {"time", "level", "logger", "exception"})
    named = attrs.fields_dict(event_type).keys() - {"message", "shard", "stream_arn"}
    assert named <= fields.keys()
    record = record_of(event, caplog)
    assert fields.items() <= vars(record).items()
    line = JsonLogFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": logging.getLevelName(record.levelno),
        "logger": "kinesis_publishers",
        "message": str(event),
        **fields,
    }


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            ShardStopped(shard=SHARD, position=POSITION, error="LookupError: no such customer."),
            f"Shard {SHARD} stopped at AFTER_SEQUENCE_NUMBER 4968: LookupError: no such customer.",
        ),
        (
            ShardStopped(shard=SHARD, position=POSITION, error=None),
            "Shard orders/shardId-000000000003 stopped at AFTER_SEQUENCE_NUMBER 4968.",
        ),
        (
            FetcherStopped(streams=("orders", "clicks"), seconds=61.26, error=None),
            "A fetcher of orders, clicks stopped after 61.3 s.",
        ),
        (
            RecordsFailed(shard=SHARD, code="RecordExpiredError", records=1),
            f"The producer gave up 1 record for shard {SHARD}: RecordExpiredError.",
        ),
        (
            LeaseReleased(shard=SHARD, owner="worker-2"),
            "This worker released the lease on shard orders/shardId-000000000003 to worker-2.",
        ),
        (
            RecordsLate(query="bills", shard=None, stream_arn=None, records=3),
            (
                "Query bills read 3 records that arrived more than 15 s before the end of an "
                "earlier micro-batch."
            ),
        ),
        (
            CallbackDelayed(
                shard=None, callback="jobs.flush", record=None, seconds=60.0, has_returned=False
            ),
            "jobs.flush has not returned for 60 s; what comes next waits.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sentence_says_what_is_known(event: Event, sentence: str) -> None:
    assert str(event) == sentence


def test_a_shard_is_a_stream_and_an_id_in_json() -> None:
    assert ShardStopped(shard=SHARD, position=POSITION, error=None).fields() == {
        "event": "ShardStopped",
        "stream": "orders",
        "stream_arn": STREAM_ARN,
        "shard": "shardId-000000000003",
        "position": "AFTER_SEQUENCE_NUMBER 4968",
        "error": None,
    }


def test_an_event_of_a_program_s_own_needs_no_sentence() -> None:
    @attrs.frozen
    class Mine(Event):
        orders: int

    assert str(Mine(3)).endswith("Mine(orders=3)")
    assert Mine(3).fields() == {"event": "Mine", "orders": 3}


def test_an_event_of_a_program_s_own_may_extend_one_of_the_package() -> None:
    @attrs.frozen(kw_only=True)
    class Mine(RecordsFailed):
        orders: int

    mine = Mine(shard=SHARD, code="Late", records=1, orders=3)
    assert mine.fields()["orders"] == 3
    assert str(mine) == f"The producer gave up 1 record for shard {SHARD}: Late."


def test_json_has_the_traceback_of_an_error_and_what_others_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise LookupError("no such\ncustomer")
    except LookupError:
        logging.getLogger("jobs").exception(
            "%s failed", "billing", extra={"order": SHARD, "level": "mine"}
        )
    (record,) = caplog.records
    line = JsonLogFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert read.pop("exception").startswith("Traceback (most recent call last):\n")
    del read["time"]
    assert read == {
        "level": "ERROR",
        "logger": "jobs",
        "message": "billing failed",
        "order": "orders/shardId-000000000003",
    }


def test_the_environment_selects_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    text = logging.Formatter()
    for name in ("", "text"):
        monkeypatch.setenv(LOG_FORMAT_VARIABLE, name)
        assert log_formatter(text) is text
    monkeypatch.delenv(LOG_FORMAT_VARIABLE)
    assert log_formatter(text) is text
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "json")
    assert isinstance(log_formatter(text), JsonLogFormatter)
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "xml")
    with pytest.raises(ConfigError, match="must be text or json, not 'xml'"):
        log_formatter(text)


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_event_can_be_pickled(event_type: type[Event]) -> None:
    event = sample(event_type, is_sparse=False)
    assert pickle.loads(pickle.dumps(event)) == event
