"""The order in which tests run, and what repeats a failure of ``tox -e soak``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import schedule

if TYPE_CHECKING:
    from pathlib import Path

_CONFTEST = """
from hypothesis import settings
from tests.schedule import (
    chance, pytest_addoption, pytest_collection_modifyitems, pytest_configure,
    pytest_terminal_summary,
)
settings.register_profile("soak", max_examples=1)
"""
_MARKERS = """
[pytest]
markers =
    xdist_group
    spark
    soak
    chance
"""


@pytest.fixture(autouse=True)
def _suite(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(_CONFTEST)
    pytester.makeini(_MARKERS)


def test_only_soak_tries_other_examples_in_each_run() -> None:
    profiles = [settings.get_profile(name) for name in ("ci", "long", "soak")]
    assert [one.derandomize for one in profiles] == [True, True, False]
    assert [one.database for one in profiles] == [None] * 3


def test_the_longest_come_first_and_a_module_that_starts_java_stays_in_one_lane(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = "import pytest\npytestmark = pytest.mark.spark\n"
    one, two = "def test_one():\n    pass\n", "def test_two():\n    pass\n"
    left_out = "@pytest.mark.soak\ndef test_soak():\n    pass\n"
    pytester.makepyfile(
        test_short=one,
        test_long=one,
        test_a=spark + one + two,
        test_b=spark + one,
        test_c=spark + one + left_out,
    )
    seconds = {
        "test_long.py::test_one": 50,
        "test_a.py::test_one": 15,
        "test_a.py::test_two": 15,
        "test_b.py::test_one": 20,
        "test_c.py::test_one": 15,
        "test_c.py::test_soak": 100,
    }
    durations = tmp_path / "durations.json"
    durations.write_text(json.dumps(seconds))
    monkeypatch.setattr(schedule, "_DURATIONS", durations)

    _, calls = pytester.inline_genitems("-p", "no:randomly", "-p", "no:asyncio", "-m", "not soak")
    (call,) = calls.getcalls("pytest_collection_finish")
    items = call.session.items
    assert [item.nodeid for item in items] == [
        "test_long.py::test_one",
        "test_b.py::test_one",
        "test_c.py::test_one",
        "test_a.py::test_one",
        "test_a.py::test_two",
        "test_short.py::test_one",
    ]
    groups = [item.get_closest_marker("xdist_group") for item in items]
    lanes = [group and group.args[0] for group in groups]
    first, second = "spark processes 1", "spark processes 2"
    assert lanes == [None, second, second, first, first, None]


def test_soak_prints_what_repeats_a_failure_with_what_was_left_to_chance(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_chance="import pytest\n"
        "@pytest.mark.xdist_group('a group')\n"
        "@pytest.mark.parametrize('what', ['a kill'])\n"
        "def test_it(chance, what):\n"
        "    raise AssertionError(chance.randrange(10**9))\n"
    )

    def failure(seed: int) -> str:
        options = ["--hypothesis-profile", "soak", "--randomly-seed", str(seed), "-m", "chance"]
        run = pytester.runpytest_subprocess(*options, "-n", "1", "--dist", "loadgroup")
        command = f"tox -e soak -- --randomly-seed {seed} 'test_chance.py::test_it[[]a kill]'"
        run.stdout.fnmatch_lines([f"To repeat it: {command}"])
        # At once, and at the end.
        first, second = (line for line in run.outlines if line.startswith("E  "))
        assert first == second
        return first

    assert failure(7) == failure(7) != failure(8)


_STORING = """
from pathlib import Path
import pytest
from tests import schedule
schedule._DURATIONS = Path(__file__).with_name("durations.json")
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.duration = 2 / 3
    return report
"""


@pytest.mark.parametrize(
    ("profile", "stored"),
    [
        ("default", {"test_it.py::test_it[plain]": 2.0, "test_it.py::test_it[soak]": 2.0}),
        ("soak", {"test_it.py::test_it[soak]": 2.0}),
    ],
)
def test_soak_stores_how_long_the_tests_took_that_only_soak_has(
    pytester: pytest.Pytester, profile: str, stored: dict[str, float]
) -> None:
    pytester.makeconftest(_CONFTEST + _STORING)
    pytester.makepyfile(
        test_it="import pytest\n"
        "only_soak = pytest.param('soak', marks=pytest.mark.soak)\n"
        "@pytest.mark.parametrize('what', ['plain', only_soak])\n"
        "def test_it(what):\n"
        "    pass\n"
    )
    durations = pytester.path / "durations.json"
    others = {"test_other.py::test_it": 1.5}
    durations.write_text(json.dumps(others | {"test_it.py::test_it[soak]": 140.0}))

    pytester.runpytest_subprocess("--hypothesis-profile", profile, "--store-durations", "-n", "1")
    assert json.loads(durations.read_text()) == others | stored


@pytest.mark.parametrize("profile", ["default", "soak"])
def test_examples_do_not_depend_on_what_is_loaded(pytester: pytest.Pytester, profile: str) -> None:
    pytester.makeconftest(_CONFTEST.replace("max_examples=1", "max_examples=100"))
    pytester.makepyfile(constants=f"CONSTANTS = {[*range(10**6, 10**6 + 1000)]}")
    pytester.makepyfile(
        test_numbers="import zlib\n"
        "from hypothesis import given, settings, strategies\n"
        "drawn = []\n"
        "@settings(derandomize=settings.get_current_profile_name() != 'soak', database=None)\n"
        "@given(strategies.lists(strategies.integers()))\n"
        "def test_it(numbers):\n"
        "    drawn.append(numbers)\n"
        "def test_fail():\n"
        "    raise AssertionError(zlib.crc32(str(drawn).encode()))\n"
    )

    def failure(*options: str) -> str:
        options = ("--hypothesis-profile", profile, "--randomly-seed", "7", *options)
        run = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
        run.assert_outcomes(passed=1, failed=1)
        (number,) = {line for line in run.outlines if line.startswith("E  ")}
        return number

    assert failure() == failure("-p", "constants")
