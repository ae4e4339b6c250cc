"""Which store the properties open, and what is said about one that does not fit."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import CheckpointStore, Properties
from kinesis_publishers.assembly import checkpoint_store_class, open_checkpointer
from kinesis_publishers.checkpoints import MemoryCheckpointStore
from kinesis_publishers.errors import PluginLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator


class OwnStore(MemoryCheckpointStore):
    """Remembers which of them were opened, and whether they were closed."""

    opened: list[OwnStore]

    async def open(self) -> None:
        await super().open()
        self.opened.append(self)
        self.is_closed = False

    async def close(self) -> None:
        await super().close()
        self.is_closed = True


class HalfDone(CheckpointStore):
    async def open(self) -> None: ...


class Forgetful(OwnStore):
    @classmethod
    def from_properties(cls, properties: Any, context: Any) -> Any:
        cls(context)  # and no return


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module: Any = types.ModuleType("store_plugin")
    module.OwnStore, module.HalfDone, module.Forgetful = OwnStore, HalfDone, Forgetful
    monkeypatch.setitem(sys.modules, module.__name__, module)
    OwnStore.opened = []
    yield
    OwnStore.opened = []


def properties_with(store: str | None) -> Properties:
    values = {"kinesis.streams": "orders", "aws.region": "eu-west-1"}
    if store is not None:
        values |= {
            "kinesis.checkpoint.application": "test-opening",
            "kinesis.checkpoint.store": store,
        }
    return Properties.parse(values)


async def test_nothing_is_opened_without_an_application() -> None:
    async with open_checkpointer(properties_with(None)) as checkpointer:
        assert checkpointer is None


@pytest.mark.parametrize("name", ["store_plugin:OwnStore", "own"])
async def test_a_custom_store_is_opened_and_closed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    point = EntryPoint("own", "store_plugin:OwnStore", "kinesis_publishers.checkpoint_stores")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: EntryPoints([point]))
    async with open_checkpointer(properties_with(name)) as checkpointer:
        assert checkpointer is not None
        assert await checkpointer.take_over({}) == {}
    (store,) = OwnStore.opened
    assert store.is_closed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("store_plugin:HalfDone", "is abstract: it lacks close, from_properties, load"),
        (
            "store_plugin:Forgetful",
            r"Forgetful: from_properties\(\) returned NoneType.*CheckpointStore",
        ),
        ("store_plugin:Other", "store_plugin has no 'Other'"),
        ("mongodb", "no entry point of the group 'kinesis_publishers.checkpoint_stores'"),
    ],
)
async def test_a_store_that_does_not_fit_is_said(name: str, message: str) -> None:
    with pytest.raises(PluginLoadError, match=message):
        await open_checkpointer(properties_with(name)).__aenter__()


@pytest.mark.parametrize(("store", "library"), [("sql", "sqlalchemy"), ("redis", "redis")])
def test_an_extra_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, store: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"kinesis_publishers.checkpoints.{store}", raising=False)
    with pytest.raises(PluginLoadError, match=rf"kinesis-publishers\[{store}\]"):
        checkpoint_store_class(store)
