"""Which tests share a process, in which order they run, and from which seed.

The longest come first, so that no processor waits for the last one. ``durations.json`` has the
seconds of the tests that take one second or more: ``.ci/run --store-durations`` writes it anew, and
``tox -e soak -- --store-durations`` those of the tests that only soak has.
"""

from __future__ import annotations

import json
import random
import shlex
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis.core
import hypothesis.internal.conjecture.providers as hypothesis_providers
import pytest
from hypothesis import settings
from hypothesis.internal.constants_ast import Constants

if TYPE_CHECKING:
    from collections.abc import Mapping

_DURATIONS: Final = Path(__file__).with_name("durations.json")
_SECONDS_OF_OTHERS: Final = 0.05
_NAME: Final = "name"
# What starts Java processes has two lanes, and not all processes: Spark gives a Python process ten
# seconds to start, which no option changes. A module stays in one lane, with its fixtures.
_LANES: Final = {"spark processes": 2, "kcl": 2}


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"write how long tests took to {_DURATIONS.name}"
    parser.addoption("--store-durations", action="store_true", help=text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Seconds(), "seconds")
    # Hypothesis would also try the constants of our modules: of those that the tests before have
    # loaded, and others after each change of any of them.
    hypothesis_providers._get_local_constants = Constants  # noqa: SLF001 - no option does that
    if settings.get_current_profile_name() == "soak":
        # As --hypothesis-seed does, so that one number repeats all of a run.
        hypothesis.core.global_force_seed = config.option.randomly_seed
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_FailuresAtOnce(config), "failures at once")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """What is left to chance in a test: the same in each run but ``tox -e soak``."""
    path, _, name = request.node.location
    return random.Random(f"{request.config.option.randomly_seed} {path} {name}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests the groups of ``--dist loadgroup``, and put them in order."""
    stored: Mapping[str, float] = json.loads(_DURATIONS.read_text())
    # What -m leaves out is still among the items.
    left_out = [one for one in ("long", "soak") if f"not {one}" in config.option.markexpr]
    seconds = {
        item: 0.0
        if any(map(item.get_closest_marker, left_out))
        else stored.get(item.nodeid, _SECONDS_OF_OTHERS)
        for item in items
    }
    groups = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        groups[_group_of(item)].append(item)
        if "chance" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.chance)
    for name, count in _LANES.items():
        groups |= _lanes(name, groups.pop(name, []), count, seconds)
    for name, members in groups.items():
        for item in members:
            # Where tests run in several processes, the group becomes part of the test's name.
            item.user_properties.append((_NAME, item.nodeid))
            if name != item.nodeid:
                item.add_marker(pytest.mark.xdist_group(name))
    ordered = sorted(groups.values(), key=lambda group: -sum(map(seconds.__getitem__, group)))
    items[:] = [item for group in ordered for item in group]


def _group_of(item: pytest.Item) -> str:
    """Return the name of the tests that run in one process with this one."""
    if marker := item.get_closest_marker("xdist_group"):
        return str(marker.args[0])
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        # One session, which takes a gigabyte; the tests that start Spark themselves run meanwhile.
        return "spark"
    if item.get_closest_marker("spark"):
        return "spark processes"
    if "dynamodb_url" in fixtures:
        return "moto_url"
    for fixture in ("moto_url", "postgres", "mariadb", "redis_server"):
        if fixture in fixtures:
            return fixture  # one server for all
    loop = item.get_closest_marker("asyncio")
    if loop and loop.kwargs.get("loop_scope") == "module":
        return item.path.name  # what is opened in the loop
    return item.nodeid


def _lanes(
    name: str, items: list[pytest.Item], count: int, seconds: Mapping[pytest.Item, float]
) -> dict[str, list[pytest.Item]]:
    """Divide tests into so many groups that take about the same time, module by module."""
    modules = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        modules[item.path].append(item)

    def total(group: list[pytest.Item]) -> float:
        return sum(map(seconds.__getitem__, group))

    lanes: list[list[pytest.Item]] = [[] for _ in range(count)]
    for path in sorted(modules, key=lambda one: (-total(modules[one]), one)):
        min(lanes, key=total).extend(modules[path])
    return {f"{name} {number}": lane for number, lane in enumerate(lanes, 1)}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if "not long" in config.option.markexpr:
        terminalreporter.write_line("Left out: what `tox -e long` and `tox -e soak` run.")
    if settings.get_current_profile_name() == "soak":
        seed = config.option.randomly_seed
        for report in terminalreporter.getreports("failed") + terminalreporter.getreports("error"):
            if isinstance(report, pytest.TestReport):
                name = shlex.quote(_name_of(report))
                line = f"To repeat it: tox -e soak -- --randomly-seed {seed} {name}"
                terminalreporter.write_line(line)


def _name_of(report: pytest.TestReport) -> str:
    # One whose process has died has no properties.
    return str(dict(report.user_properties).get(_NAME, report.nodeid))


class _Seconds:
    """Adds up how long each test takes, and stores it on request."""

    def __init__(self) -> None:
        self._of = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # What other sizes have, too, takes longer in soak: it tries more examples.
        if "soak" in report.keywords or settings.get_current_profile_name() != "soak":
            self._of[_name_of(report)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.store_durations and not hasattr(session.config, "workerinput"):
            stored = json.loads(_DURATIONS.read_text())
            took = {name: round(one, 1) for name, one in self._of.items() if one >= 1}
            stored = took | {name: stored[name] for name in stored.keys() - self._of.keys()}
            lines = json.dumps(dict(sorted(stored.items())), indent=0)
            _DURATIONS.write_text(lines + "\n")


class _FailuresAtOnce:
    """Shows what soak has found when it has: it may be long until the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._writer = config.get_terminal_writer()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._writer.line()
            report.toterminal(self._writer)
