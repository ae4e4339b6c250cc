"""The suites as users run them: a class with one fixture, and messages that help."""

from __future__ import annotations

import pytest

_MODULE = """
import pytest
from kinesis_publishers.testing.contracts import RecordPublisherContract

{body}
"""


def run(pytester: pytest.Pytester, body: str, mode: str = "auto") -> pytest.RunResult:
    pytester.makepyfile(_MODULE.format(body=body))
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function"
    )
    return pytester.runpytest_subprocess("-p", "no:randomly", "-rs")


def test_a_contract_without_a_fixture_says_what_it_needs(pytester: pytest.Pytester) -> None:
    result = run(pytester, "class TestMine(RecordPublisherContract):\n    pass")
    result.stdout.fnmatch_lines(["*needs a fixture `subject` that returns a PublisherSubject*"])
    assert result.ret == 1


def test_the_contract_itself_is_not_run(pytester: pytest.Pytester) -> None:
    assert run(pytester, "").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_a_broken_publisher_fails_and_what_does_not_apply_is_skipped_with_the_reason(
    pytester: pytest.Pytester, mode: str, mark: str
) -> None:
    body = f"""
from tests.contract.list_publisher import ListPublisher, subject_of

class EndsTooEarly(ListPublisher):
    def result(self):
        from kinesis_publishers import RunResult
        return RunResult.COMPLETE

{mark}
class TestMine(RecordPublisherContract):
    @pytest.fixture
    def subject(self):
        subject = subject_of(EndsTooEarly)
        subject.can_be_throttled = False
        return subject
"""
    result = run(pytester, body, mode)
    result.stdout.fnmatch_lines(["*COMPLETE after 5 of 12 records*"])
    result.stdout.fnmatch_lines(["*BrokenSubject.can_be_throttled is False*"])
    outcomes = result.parseoutcomes()
    assert outcomes["skipped"] >= 1
    assert outcomes["failed"] > 5
