"""Hash keys, which decide the shard of a record, and what a producer may put."""

from __future__ import annotations

import pytest

from kinesis_publishers import UserRecord
from kinesis_publishers.model import HashRange, hash_key_of
from kinesis_publishers.testing.fakes import sample_shard


def test_the_hash_key_is_the_md5_of_the_partition_key():
    # echo -n key | md5sum
    assert hash_key_of("key") == 0x3C6E0B8A9C15224A8228B9A98CA1531D
    assert hash_key_of("ключ") == 0xC3657B66C60A307292AAE11F07B04AE7


def test_an_explicit_hash_key_goes_first():
    assert hash_key_of("key", "42") == 42
    assert hash_key_of("key", str(2**128 - 1)) == 2**128 - 1


@pytest.mark.parametrize("text", ["", "-1", "1.0", "0x5", "٣", str(2**128), "1" * 5000])
def test_what_is_no_explicit_hash_key_is_refused(text: str):
    with pytest.raises(ValueError, match="decimal number from 0 to 2"):
        hash_key_of("key", text)
    with pytest.raises(ValueError, match="decimal number from 0 to 2"):
        UserRecord(data=b"", partition_key="key", explicit_hash_key=text)


def test_the_range_of_a_shard_includes_both_ends():
    shard = sample_shard()
    assert HashRange.of(shard) == HashRange(0, 2**128 - 1)
    assert [key in HashRange(2, 4) for key in (1, 2, 4, 5)] == [False, True, True, False]


@pytest.mark.parametrize("key", ["", "k" * 257])
def test_a_partition_key_of_the_wrong_length_is_refused(key: str):
    with pytest.raises(ValueError, match="1 to 256 characters"):
        UserRecord(data=b"", partition_key=key)
