"""Brings the files around ``docs/`` into the site, and makes the links of its pages lead there.

The pages are written for readers of the repository: a link is relative to its own file and may
leave ``docs/``. In the site ``docs/index.md`` stands for README.md, and the other targets outside
of ``docs/`` are pages below ``repository/``. Decisions are not in the site: a link to one becomes
plain text. A page that has moved leads to its new place, which ``redirects.yml`` names.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from mkdocs.utils.yaml import yaml_load

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_DOCS: Final = Path(__file__).parent
_ROOT: Final = _DOCS.parent
_AROUND: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
    "benchmarks/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
)
_FENCED_OR_LINK: Final = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)[^\n]*$|(?P<open>\]\()(?P<path>[^)#\s]+)(?P<rest>[^)\s]*\))",
    re.DOTALL | re.MULTILINE,
)

_TO_A_DECISION: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?:[\w./]*/)?decisions/[^)\s]*\)")

_REDIRECT: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{target}">
<meta name="robots" content="noindex">
<script>location.replace({sections}[location.hash.slice(1)] || {here})</script>
<noscript><meta http-equiv="refresh" content="0; url={target}"></noscript>
<p>This page has moved <a href="{target}">here</a>.</p>
"""

# A long name in a line or in the cell of a table; without, a browser divides it in any word.
_LONG_NAME: Final = re.compile(r"(?<=<code>)[^<\n]{12,}(?=</code>)")
_ENDS_OF_WORDS: Final = r"(?<=\w[._:/-])(?=[\w&])"
_LONG_WORD: Final = 24
_ROLE: Final = re.compile(r":\w+:<code>(?:~[\w.]*\.)?(?P<name>[^<]*)</code>")


@cache
def pages_around() -> dict[str, str]:
    """Return the path in the site of each file that is outside of ``docs/``, by its path here."""
    found = [path.relative_to(_ROOT) for glob in _AROUND for path in sorted(_ROOT.glob(glob))]
    return {str(path): _site_path(path) for path in found}


def _site_path(path: Path) -> str:
    # MkDocs would make a README.md the index of its directory.
    stem = path.with_suffix("") if path.suffix == ".md" else path
    return f"repository/{str(stem).lower()}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of ``docs/``."""
    for path, site_path in pages_around().items():
        files.append(File.generated(config, site_path, content=_content(_ROOT / path)))
    files.append(File.generated(config, "repository/examples.md", content=_examples()))
    return files


def _content(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    language = path.suffix.removeprefix(".")
    return f"# {path.relative_to(_ROOT)}\n\n```{language}\n{text}```\n"


def _examples() -> str:
    rows = (
        f"- [{path}]({site_path.removeprefix('repository/')})"
        for path, site_path in pages_around().items()
        if path.startswith("examples/")
    )
    return "# Examples\n\n" + "\n".join(rows) + "\n"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make the links into and out of ``docs/`` lead to their targets in the site."""
    site_path = page.file.src_uri
    own_path = {there: here for here, there in pages_around().items()}.get(site_path)
    markdown = _TO_A_DECISION.sub(lambda match: match["text"], markdown)
    directory = posixpath.dirname(own_path if own_path is not None else f"docs/{site_path}")

    def led(match: re.Match[str]) -> str:
        path = match["path"]
        if path is None or ":" in path:
            return match[0]
        target = posixpath.normpath(posixpath.join(directory, path))
        there = _in_site(target)
        if there is None:
            raise PluginError(f"{site_path}: nothing in the site is {path}")
        relative = posixpath.relpath(there, posixpath.dirname(site_path) or ".")
        return f"{match['open']}{relative}{match['rest']}"

    return _FENCED_OR_LINK.sub(led, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show roles, as :class:`Record`, as plain names; let long names be divided."""
    html = _ROLE.sub(lambda match: f"<code>{match['name']}</code>", html)
    return _LONG_NAME.sub(lambda name: _divisible(name[0]), html)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Write a page that leads on for each page that is gone."""
    for old, sections in redirects().items():
        page = Path(config.site_dir) / old.removesuffix(".md") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_redirect(old, sections), encoding="utf-8")


def redirects() -> dict[str, dict[str, str]]:
    """Return for each page that is gone where its sections are now; the whole page is ``""``."""
    table: dict[str, str] = yaml_load((_DOCS / "redirects.yml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, str]] = {}
    for old, new in table.items():
        page, _, section = old.partition("#")
        found.setdefault(page, {})[section] = new
    return found


def _redirect(old: str, sections: dict[str, str]) -> str:
    addresses = {section: _address(old, new) for section, new in sections.items()}
    whole = addresses.pop("")
    return _REDIRECT.format(target=whole, here=json.dumps(whole), sections=json.dumps(addresses))


def _address(old: str, new: str) -> str:
    page, hash_sign, section = new.partition("#")
    path = page.removesuffix(".md").removesuffix("index")
    return f"{posixpath.relpath(path or '.', old.removesuffix('.md'))}/{hash_sign}{section}"


def _divisible(name: str) -> str:
    ends = _ENDS_OF_WORDS + (r"|(?<=[a-z])(?=[A-Z])" if len(name) >= _LONG_WORD else "")
    return re.sub(ends, "<wbr>", name)


def _in_site(target: str) -> str | None:
    if target in {"README.md", "."}:
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target == "examples":
        return "repository/examples.md"
    return pages_around().get(target)
