"""What pages and errors say about installing works, in a fresh environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("kinesis_publishers", "kinesis_publishers_spark", "pyspark_kinesis")
_INSTALL = "pip install '.[spark,local]'"
# Of what is installed, in an error or in a project of `init`.
_EXTRAS = re.compile(r"pip install 'kinesis-publishers\[([\w,]+)\]'")
_DISTRIBUTION = "__import__('importlib.metadata').metadata.distribution('kinesis-publishers')"
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    # One process installs it once.
    pytest.mark.xdist_group("install"),
]


class Environment:
    """A fresh environment: the bare machine of a user."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "environment", with_pip=True)
        self._environ = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            "PATH": f"{folder / 'environment' / 'bin'}:{os.environ['PATH']}",
        }

    def run(self, command: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def running(self, command: str, until: str) -> Iterator[None]:
        with subprocess.Popen(
            ["bash", "-euc", f"exec {command}"],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                lines = iter(process.stdout.readline, "")
                assert any(until in line for line in lines), f"{command} ended"
                yield
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: building leaves files behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in _PACKAGES:
        shutil.copytree(_ROOT / name, folder / name)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("fresh"))
    environment.run(_INSTALL, checkout)
    return environment


def test_every_page_has_the_command_that_is_tried_here() -> None:
    """In a checkout; after it may stand what is no part of this package."""
    pages = [_ROOT / "README.md", *_ROOT.glob("docs/*.md")]
    found = {
        (page.name, command)
        for page in pages
        for command in re.findall(r"pip install '\.\[[^`\n]*", page.read_text("utf-8"))
    }
    assert {name for name, _ in found} >= {"README.md", "index.md", "tutorial.md"}
    others = {one for one in found if not one[1].startswith(_INSTALL)}
    assert others == {("local-kinesis.md", "pip install '.[local]'")}


def test_the_commands_of_the_front_page_put_into_a_local_kinesis(
    installed: Environment, tmp_path: Path
) -> None:
    text = (_ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```sh\n(kinesis-publishers local .*?)```", text, re.DOTALL)
    serve, put, export = block.strip().split("\n")
    with installed.running(serve.removesuffix("&"), until="4567"):
        assert "Wrote 1 record to orders" in installed.run(f"{export}\n{put}", tmp_path)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("plain", " passed"), ("publisher", " passed"), ("spark", "1 test collected")],
)
def test_the_commands_of_a_new_project_work(
    kind: str, said: str, installed: Environment, tmp_path: Path
) -> None:
    installed.run(f"kinesis-publishers init mine --kind {kind}", tmp_path)
    text = (tmp_path / "mine" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    install, test = (line.partition("#")[0] for line in block.split("\n")[:2])
    # The tests of the job take a minute, and run with those of the command line.
    more = "--collect-only" if kind == "spark" else ""
    assert said in installed.run(f"{install}\n{test} {more}", tmp_path / "mine")


def test_every_extra_that_is_named_adds_to_what_is_installed(
    installed: Environment, tmp_path: Path
) -> None:
    files = [_ROOT / "README.md", *_ROOT.glob("docs/*.md")]
    files += [path for name in _PACKAGES for path in (_ROOT / name).rglob("*.*")]
    texts = [path.read_text("utf-8") for path in files if path.suffix in (".md", ".py", ".txt")]
    named = {name for text in texts for names in _EXTRAS.findall(text) for name in names.split(",")}
    known = f"{_DISTRIBUTION}.metadata.get_all('Provides-Extra')"
    assert {"local"} < named <= {*installed.run(f'python -c "print(*{known})"', tmp_path).split()}
    # Without an index: it adds to what the checkout has installed.
    added = f"pip install --no-index --no-deps 'kinesis-publishers[{','.join(sorted(named))}]'"
    assert "Requirement already satisfied" in installed.run(added, tmp_path)


def test_an_editable_checkout_has_the_source_for_spark_and_the_server(
    checkout: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path)
    environment.run("pip install --no-deps --editable .", checkout)
    code = (
        "import kinesis_publishers.testing as testing, pkgutil\n"
        "for path in (None, testing.__path__):\n"
        "    print(*(found.name for found in pkgutil.iter_modules(path)))\n"
    )
    found = environment.run(f'python -c "{code}"', tmp_path).split()
    assert {"pyspark_kinesis", "local_kinesis"} <= {*found}
