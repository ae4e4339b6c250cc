"""How a store tells its own writes from those of others."""

from __future__ import annotations

from kinesis_publishers.checkpoints import WriteBook
from kinesis_publishers.model import CheckpointVersion, ShardKey

KEY = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shardId-000000000000")


def version(number: int, writer: str) -> CheckpointVersion:
    return CheckpointVersion(number=number, writer=writer)


def test_the_expected_version_is_replaced_and_no_other():
    attempt = WriteBook("me").attempt(KEY, version(4, "other"))
    assert attempt.version == version(5, "me")
    assert attempt.replaces(version(4, "other"))
    for stored in (None, version(4, "third"), version(3, "other"), version(5, "other")):
        assert not attempt.replaces(stored)


def test_the_same_attempt_may_be_carried_out_twice():
    attempt = WriteBook("me").attempt(KEY, None)
    assert attempt.replaces(attempt.version)


def test_a_write_follows_one_whose_answer_was_lost():
    book = WriteBook("me")
    lost = book.attempt(KEY, None)
    again = book.attempt(KEY, None)
    assert again.replaces(None)
    assert again.replaces(lost.version)


def test_a_request_that_arrives_late_undoes_nothing():
    book = WriteBook("me")
    late = book.attempt(KEY, None)
    again = book.attempt(KEY, None)
    assert not late.replaces(again.version)


def test_an_own_version_that_was_confirmed_must_be_the_expected_one():
    book = WriteBook("me")
    first = book.attempt(KEY, None)
    book.confirm([first])
    stale = book.attempt(KEY, None)
    assert not stale.replaces(first.version)


def test_two_books_have_different_writers():
    assert WriteBook().writer != WriteBook().writer
