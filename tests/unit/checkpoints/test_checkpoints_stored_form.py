"""Checkpoints as texts and numbers come back as they were; damaged ones are errors."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.checkpoints.dynamodb import row_of, stored_of
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    Lease,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
)

KEY = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shardId-000000000000")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# hypothesis wants the bounds without a zone.
_FIRST, _LAST = datetime(1970, 1, 2), datetime(9000, 1, 1)  # noqa: DTZ001

zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
instants = st.datetimes(_FIRST, _LAST, timezones=zones)
numbers = st.builds(
    SequenceNumber,
    st.integers(0, 2**190).map(str),
    st.none() | st.integers(0, 2**31),
)
positions = st.one_of(
    st.just(StartingPosition.trim_horizon()),
    instants.map(StartingPosition.at_timestamp),
    numbers.map(StartingPosition.at),
    numbers.map(StartingPosition.after),
)
checkpoints = st.builds(
    Checkpoint,
    shard=st.builds(
        ShardKey, st.just(KEY.stream_arn), st.sampled_from(["*", "shardId-000000000003"])
    ),
    stream_created_at=instants,
    progress=st.builds(
        ShardProgress, position=positions, as_of=st.none() | instants, is_ended=st.booleans()
    ),
    lease=st.none()
    | st.builds(Lease, watermark=st.none() | instants, is_idle=st.none() | st.just(True)),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)
leases = json_values | st.dictionaries(
    st.sampled_from([field.name for field in attrs.fields(Lease)]), json_values
)


@given(checkpoints, st.integers(1, 2**60))
def test_fields_and_items_give_the_checkpoint_and_its_version_back(
    checkpoint: Checkpoint, number: int
) -> None:
    stored = StoredCheckpoint(
        checkpoint=checkpoint, version=CheckpointVersion(number=number, writer="me")
    )
    fields = fields_of(checkpoint, stored.version, NOON)
    assert None not in fields.values()
    assert stored_from_fields(checkpoint.shard, fields, where="there") == stored
    assert stored_of(row_of("billing", checkpoint, stored.version, NOON), where="there") == stored


CHECKPOINT = Checkpoint(
    shard=KEY,
    stream_created_at=NOON,
    progress=ShardProgress(position=StartingPosition.after(SequenceNumber("7"))),
)
VERSION = CheckpointVersion(number=1, writer="me")
SOUND = fields_of(CHECKPOINT, VERSION, NOON)
FIELDS = (*SOUND, "sub_sequence_number", "timestamp", "as_of", "lease")


@pytest.mark.parametrize(
    "damage",
    [
        {"position": "SOMEWHERE"},
        {"position": "TRIM_HORIZON"},
        {"sequence_number": "seven"},
        {"sequence_number": 7},
        {"sub_sequence_number": -1},
        {"sub_sequence_number": "1"},
        {"stream_created_at": None},
        {"as_of": "yesterday"},
        {"as_of": "2026-01-01T00:00:00"},
        {"is_ended": 2},
        {"is_ended": None},
        {"lease": "0"},
        {"lease": '["owner"]'},
        {"lease": '{"owner": 5}'},
        {"lease": '{"switches": "1"}'},
        {"lease": '{"parents": "shardId-000000000000"}'},
        {"lease": '{"hash_range": 0}'},
        {"lease": '{"hash_range": ["0", "1", "2"]}'},
        {"lease": '{"holder": "me"}'},
    ],
    ids=str,
)
def test_a_damaged_checkpoint_is_an_error_that_names_the_shard(damage: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match=KEY.shard_id):
        stored_from_fields(KEY, {**SOUND, **damage}, where="there")


@given(
    st.dictionaries(
        st.sampled_from(FIELDS),
        st.none() | st.text() | st.integers() | leases.map(json.dumps),
    )
)
def test_any_fields_give_a_checkpoint_or_a_checkpoint_error(
    damage: dict[str, object],
) -> None:
    with suppress(CheckpointError):
        stored = stored_from_fields(KEY, {**SOUND, **damage}, where="there")
        again = fields_of(stored.checkpoint, stored.version, NOON)
        assert stored_from_fields(KEY, again, where="there") == stored


@pytest.mark.parametrize(
    "damage",
    [{"version": {"N": "1.5"}}, {"version": {"S": "1"}}, {"writer": {}}, {"is_ended": {"N": "x"}}],
    ids=str,
)
def test_a_damaged_item_is_an_error_that_names_the_shard(
    damage: dict[str, dict[str, str]],
) -> None:
    with pytest.raises(CheckpointError, match=f"{KEY.shard_id} of .*Do not remove it"):
        stored_of({**row_of("billing", CHECKPOINT, VERSION, NOON), **damage}, where="there")
