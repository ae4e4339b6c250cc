"""Loads the classes that a configuration names: ``module:Class`` or an installed entry point."""

from __future__ import annotations

import difflib
import importlib
import inspect
from importlib.metadata import entry_points
from typing import Final, TypeVar

from kinesis_publishers.config.options.checkpoints import BUILT_IN_STORES
from kinesis_publishers.errors import PluginLoadError

__all__ = [
    "CHECKPOINT_STORES_GROUP",
    "RECORD_PUBLISHERS_GROUP",
    "load_class",
    "load_entry_point",
    "load_plugin",
]

RECORD_PUBLISHERS_GROUP: Final = "kinesis_publishers.record_publishers"
"""The entry-point group in which a package announces record publisher factories."""

CHECKPOINT_STORES_GROUP: Final = "kinesis_publishers.checkpoint_stores"
"""The entry-point group in which a package announces stores of checkpoints."""

_BUILT_IN: Final = {
    RECORD_PUBLISHERS_GROUP: ("POLLING", "EFO"),
    CHECKPOINT_STORES_GROUP: BUILT_IN_STORES,
}

_T = TypeVar("_T")


def load_plugin(name: str, base: type[_T], *, group: str = RECORD_PUBLISHERS_GROUP) -> type[_T]:
    """Return the class that ``name`` means: ``module:Class``, else an entry point of ``group``.

    Raises:
        PluginLoadError: says what is missing.
    """
    return load_class(name, base) if ":" in name else load_entry_point(name, base, group=group)


def load_class(reference: str, base: type[_T]) -> type[_T]:
    """Return the class at ``module:Class``, which must be a concrete subclass of ``base``.

    With ``base=object`` any class will do.

    Raises:
        PluginLoadError: the module or the attribute is missing, importing fails, or it is not such
            a class.
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise PluginLoadError(f"{reference!r} is not of the form module:Class")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:  # a plugin's module may raise anything
        raise PluginLoadError(_describe_import_failure(reference, module_name, error)) from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise PluginLoadError(_describe_missing_attribute(reference, found, attribute))
        found = getattr(found, attribute)
    return _check_class(reference, found, base)


def load_entry_point(name: str, base: type[_T], *, group: str) -> type[_T]:
    """Return the class that the entry point ``name`` of ``group`` announces.

    Raises:
        PluginLoadError: there is no such entry point, or as for :func:`load_class`.
    """
    candidates = {point.name: point for point in entry_points(group=group)}
    point = candidates.get(name)
    if point is None:
        built_in = {known.lower(): known for known in _BUILT_IN.get(group, ())}
        near = difflib.get_close_matches(name.lower(), built_in, n=1)
        hint = f"; did you mean {built_in[near[0]]}?" if near else ""
        installed = ", ".join(sorted(candidates)) or "none"
        raise PluginLoadError(
            f"{name!r} is no entry point of the group {group!r} (installed: {installed}){hint}"
        )
    return load_class(point.value.partition("[")[0].replace(" ", ""), base)


def _check_class(reference: str, found: object, base: type[_T]) -> type[_T]:
    if not isinstance(found, type):
        raise PluginLoadError(
            f"{reference} is not a class but an object of type {type(found).__name__}: name the "
            "class itself"
        )
    if not issubclass(found, base):
        required = sorted(getattr(base, "__abstractmethods__", ()))
        missing = [name for name in required if not hasattr(found, name)]
        lacks = f" and lacks {', '.join(missing)}" if missing else ""
        raise PluginLoadError(
            f"{reference} does not extend {base.__module__}.{base.__qualname__}{lacks}"
        )
    if inspect.isabstract(found):
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        raise PluginLoadError(f"{reference} is abstract: it lacks {', '.join(missing)}")
    return found


def _describe_import_failure(reference: str, module_name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if module_name == error.name or module_name.startswith(f"{error.name}."):
            return (
                f"{reference}: there is no module {error.name!r}; install it in every process that "
                "reads (on Spark also on the executors)"
            )
        return f"{reference}: its module needs {error.name!r}, which is not installed"
    return f"{reference}: importing its module failed with {type(error).__name__}: {error}"


def _describe_missing_attribute(reference: str, owner: object, attribute: str) -> str:
    names = [name for name in dir(owner) if not name.startswith("_")]
    near = difflib.get_close_matches(attribute, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    where = getattr(owner, "__name__", type(owner).__name__)
    return f"{reference}: {where} has no {attribute!r}{hint}"
