"""The pages of the documentation fit the code, the site and each other."""

from __future__ import annotations

import pkgutil
import re
import runpy
from typing import TYPE_CHECKING

import javaproperties
import pytest

from kinesis_publishers.config.catalogue import all_declarations, find_option
from tests.docs.doc_pages import AVOIDED, PAGES, ROOT, blocks_of, name_of, prose_of

if TYPE_CHECKING:
    from pathlib import Path

_DOCS = ROOT / "docs"
_LINKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
_GENERATED = runpy.run_path(str(_DOCS / "generate.py"))["PAGES"]
_REDIRECTS = runpy.run_path(str(_DOCS / "site_hooks.py"))["redirects"]()
_NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
_KEY = re.compile(
    r"(?<![\w.<-])(?:kinesis|flink|aws\.credentials|aws\.(?:region|endpoint|cabundle))"
    r"(?:\.[\w<>\[\]-]+)*"
)
# Prefixes of other connectors' options, and names that are no keys.
_FOREIGN = re.compile(r"kinesis\.(?:executor|client|X$|us-|eu-|ap-|REGION)|flink\.X$|\w+$")
_FILE = re.compile(r"(?<![\w/.:-])((?:[\w.-]+/)*[\w-]+\.(?:py|cfg|ini|toml|yml))\b")
_MODULE = re.compile(r"`(kinesis_publishers(?:_spark)?(?:\.\w+)+)`")
# Where a path on a page begins; a decision names the files of its time.
_BEGINNINGS = [ROOT / name for name in ("", "kinesis_publishers", "kinesis_publishers_spark")]
_OF_TODAY = [page for page in _LINKED if not page.is_relative_to(_DOCS / "decisions")]
_PLAIN = [page for page in _OF_TODAY if page.name != "CHANGELOG.md"]
_DECLARED = [option.full_key.lower() for option in all_declarations()]


# The pages of 0.2.0, to which links lead from elsewhere.
_FORMER = """
    aggregation architecture backpressure checkpoints choose-a-publisher command-line
    configuration cookbook cookbook-python cookbook-tables cookbook-time custom-publisher
    delivery-guarantees deploy differences-from-flink enhanced-fan-out errors glossary
    iam-policies index leases local-kinesis many-workers migrate-from-flink migrate-from-kcl
    missing-records observability planners positions producing production python-api resharding
    resharding-order security simple-api spark-aliases spark-batch spark-limits spark-migration
    spark-options spark-pipelines spark-sink spark-triggers testing time tuning tutorial
"""


def anchors_of(page: Path) -> set[str]:
    """Return where a link into a page may lead."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def keys_on(page: Path) -> set[str]:
    """Return everything on a page that looks like a key, in prose and in properties."""
    prose = " ".join(re.findall(r"`([^`\n]+)`", prose_of(page)))
    fragments = [block.code for block in blocks_of(page) if block.language == "properties"]
    written = {key for code in fragments for key in javaproperties.loads(code)}
    return {key for key in _KEY.findall(prose) if not _FOREIGN.match(key)} | written


def is_known(key: str) -> bool:
    """Return whether a key, or what several keys begin with, is declared."""
    if find_option(key) is not None:
        return True
    prefix, _, bare = key.lower().partition(".")
    beginning = f"kinesis.{bare}." if prefix == "flink" else f"{key.lower()}."
    return any(f"{name}.".startswith(beginning) for name in _DECLARED)


@pytest.mark.parametrize("name", _GENERATED)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    # Otherwise: tox -e docs
    assert (_DOCS / name).read_text(encoding="utf-8") == _GENERATED[name]()


@pytest.mark.parametrize("page", _LINKED, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose_of(page))
    broken = []
    for target in targets:
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_key_that_a_page_names_is_declared(page: Path) -> None:
    assert sorted(key for key in keys_on(page) if not is_known(key)) == []


@pytest.mark.parametrize("page", _OF_TODAY, ids=name_of)
def test_every_file_and_module_that_a_page_names_exists(page: Path) -> None:
    prose = prose_of(page)
    files = [
        one for one in _FILE.findall(prose) if not any((b / one).exists() for b in _BEGINNINGS)
    ]
    modules = [one for one in _MODULE.findall(prose) if not is_name_of_the_code(one)]
    assert files + modules == []


@pytest.mark.parametrize("page", _PLAIN, ids=name_of)
def test_a_page_avoids_phrases_with_a_plainer_form(page: Path) -> None:
    assert AVOIDED.findall(re.sub(r"`[^`\n]*`", "", prose_of(page))) == []


def is_name_of_the_code(name: str) -> bool:
    """Return whether a dotted name can be imported, or is one of a logger or an entry point."""
    try:
        return pkgutil.resolve_name(name) is not None
    except (AttributeError, ImportError):
        sources = [path.read_text("utf-8") for top in _BEGINNINGS[1:] for path in top.rglob("*.py")]
        return any(f'"{name}"' in source for source in sources)


def test_every_page_has_its_place_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", _NAV, re.MULTILINE))
    pages = {str(page.relative_to(_DOCS)) for page in _DOCS.rglob("*.md")}
    # One line in mkdocs.yml each; decisions are not in the site.
    assert {page for page in pages - listed if not page.startswith("decisions/")} == set()


def test_every_page_that_is_gone_leads_to_its_new_place() -> None:
    gone = {f"{page}.md" for page in _FORMER.split() if not (_DOCS / f"{page}.md").exists()}
    assert set(_REDIRECTS) >= gone
    assert [page for page in _REDIRECTS if (_DOCS / page).exists()] == []
    assert [page for page, sections in _REDIRECTS.items() if "" not in sections] == []


def test_every_new_place_exists() -> None:
    broken = []
    for target in {new for sections in _REDIRECTS.values() for new in sections.values()}:
        page, _, anchor = target.partition("#")
        file = _DOCS / page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", ["delivery-guarantees.md", "security.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (_DOCS / page).read_text("utf-8")))
    files = (ROOT / "tests").rglob("test_*.py")
    defined = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert named - defined == set()
    assert len(named) > 20


def test_an_undeclared_key_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Set `kinesis.pending.maxrecord = 5` and see `kinesis.pending`.\n", "utf-8")
    assert [key for key in keys_on(page) if not is_known(key)] == ["kinesis.pending.maxrecord"]
