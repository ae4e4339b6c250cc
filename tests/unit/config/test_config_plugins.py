"""Classes that a configuration names."""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod

import pytest

from kinesis_publishers.config import CheckpointConfig, SourceConfig
from kinesis_publishers.config.plugins import load_class, load_plugin
from kinesis_publishers.errors import PluginLoadError

_PUBLISHER = SourceConfig.record_publisher


class Base(ABC):
    @abstractmethod
    def create(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Good(Base):
    def create(self) -> None: ...

    def close(self) -> None: ...


class HalfDone(Base):
    def create(self) -> None: ...


class LooksAlike:
    def close(self) -> None: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("plugin_under_test")
    for member in (Good, HalfDone, LooksAlike):
        setattr(module, member.__name__, member)
    module.instance = Good()  # type: ignore[attr-defined]
    module.holder = types.SimpleNamespace(Inner=Good)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("path", ["Good", "holder.Inner"])
def test_a_concrete_subclass_is_loaded(path: str) -> None:
    assert load_plugin(_PUBLISHER, f"plugin_under_test:{path}", Base) is Good


@pytest.mark.usefixtures("module")
def test_any_class_will_do_where_nothing_is_expected() -> None:
    assert load_class("plugin_under_test:LooksAlike", object) is LooksAlike


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_package:X", "there is no module 'no_such_package'"),
        ("plugin_under_test:Goood", "has no 'Goood'; did you mean Good?"),
        ("plugin_under_test:holder.X", "SimpleNamespace has no 'X'"),
        ("plugin_under_test:instance", "is not a class but an object of type Good"),
        ("plugin_under_test:LooksAlike", "does not extend .*Base"),
        ("plugin_under_test:HalfDone", "is abstract: it lacks close"),
        ("plugin_under_test:", "not of the form module:Class"),
        (":X", "not of the form module:Class"),
    ],
)
def test_the_error_says_what_is_missing(reference: str, message: str) -> None:
    with pytest.raises(PluginLoadError, match=message):
        load_plugin(_PUBLISHER, reference, Base)


def test_a_mistyped_built_in_publisher_is_recognised() -> None:
    with pytest.raises(PluginLoadError, match="did you mean POLLING"):
        load_plugin(_PUBLISHER, "poling", Base)


def test_a_mistyped_built_in_store_is_recognised() -> None:
    with pytest.raises(PluginLoadError, match="did you mean dynamodb"):
        load_plugin(CheckpointConfig.store, "DynamDB", Base)
