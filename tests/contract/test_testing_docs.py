"""The code of the pages about testing and publishers of one's own works as it stands there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kinesis_publishers.testing
from kinesis_publishers.testing import fakes

_DOCS = Path(__file__).parents[2] / "docs"
_TESTING = (_DOCS / "testing.md").read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    text = (_DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["testing.md", "custom-publisher.md"])
def test_every_example_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module, in which classes are found by their names.
    names = ModuleType("docs")
    monkeypatch.setitem(sys.modules, "docs", names)
    for block in blocks(page):
        exec(compile(block, page, "exec"), names.__dict__)


def test_the_registrar_of_the_page_keeps_the_contract(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(blocks("testing.md")[-1])
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    assert result.parseoutcomes()["passed"] > 10
    assert result.ret == 0


def test_the_publisher_of_the_page_passes_what_does_not_depend_on_what_it_counts(
    pytester: pytest.Pytester,
) -> None:
    # The first one reads at once, which a module cannot do while it is imported.
    source = "\n".join(blocks("custom-publisher.md")[1:])
    # It counts the records that come, with any contents of a shard.
    source = source.replace(
        "return HeldShard(shard=shard, records=records)",
        "self.count = max(1, len(records))\n"
        "        kept = [one._replace(data=str(n).encode(), partition_key='key',"
        " sequence_number=str(n), arrival_epoch_seconds=float(n))"
        " for n, one in enumerate(records, 1)]\n"
        "        return HeldShard(shard=shard, records=kept)",
    )
    pytester.makepyfile(source)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    # Not what holds other records, none at all, or several shards.
    others = "not unusual and not without_records and not many_shards"
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-k", others)
    assert "failed" not in result.parseoutcomes()
    assert result.parseoutcomes()["passed"] > 25


def test_every_fake_that_is_named_exists_and_every_named_behaviour_is_named() -> None:
    tables = _TESTING.split("## The named fakes")[1].split("## The contract suites")[0]
    named = set(re.findall(r"`(\w+)\(", tables))
    assert named <= set(fakes.__all__)
    behaviours = {name for name in fakes.__all__ if is_named_fake(getattr(fakes, name))}
    assert len(behaviours) >= 7
    assert behaviours <= named


def is_named_fake(one: object) -> bool:
    """Say whether ``one`` makes a plane that behaves in one known way."""
    if not inspect.isfunction(one):
        return False
    return one.__annotations__["return"] in {"FakeDataPlane", "FakeControlPlane"}


def test_every_public_name_is_there() -> None:
    for name in kinesis_publishers.testing.__all__:
        assert getattr(kinesis_publishers.testing, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = kinesis_publishers.testing.Nothing


def test_importing_it_imports_neither_pytest_nor_the_server() -> None:
    code = (
        "import sys, kinesis_publishers.testing as testing; testing.fakes; testing.ManualClock;"
        "print(sorted({'pytest', 'h2', 'trustme', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
