"""Checks that a class of somebody else's can be used in the place of an interface.

Inheriting from the interface says only that the methods are there. How they are called, and that
they are awaited, is found out here: when the class is loaded, not when a shard is being read.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kinesis_publishers.errors import PluginLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_fit"]

# How a class is made is its own affair.
_ITS_OWN = frozenset({"__init__", "__init_subclass__"})
_CALLED_WITH = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_fit(found: type, base: type, *, reference: str) -> None:
    """Check that what calls ``base`` can call ``found``.

    Args:
        found: a class of somebody else's.
        base: the interface.
        reference: what ``found`` is called in messages.

    Raises:
        PluginLoadError: names every method that is missing or does not fit.
    """
    if not issubclass(found, base):
        missing = [name for name in _required(base) if not hasattr(found, name)]
        lacks = f" and lacks {', '.join(missing)}" if missing else ""
        raise PluginLoadError(
            f"{reference} does not extend {base.__module__}.{base.__qualname__}{lacks}"
        )
    if inspect.isabstract(found):
        raise PluginLoadError(f"{reference} is abstract: it lacks {', '.join(_required(found))}")
    problems = [
        problem for name in _methods(base) for problem in _problems_of_method(found, base, name)
    ]
    if problems:
        raise PluginLoadError(f"{reference} does not fit: {'; '.join(problems)}")


def _required(base: type) -> list[str]:
    return sorted(getattr(base, "__abstractmethods__", ()))


def _methods(base: type) -> list[str]:
    """Return the names of what may be called of ``base``; ``async with`` and ``()`` call too."""
    return [
        name
        for name, member in inspect.getmembers_static(base)
        if isinstance(member, FunctionType | classmethod) and _is_called_by_others(name)
    ]


def _is_called_by_others(name: str) -> bool:
    is_special = name.startswith("__") and name.endswith("__") and name not in _ITS_OWN
    return is_special or not name.startswith("_")


def _problems_of_method(found: type, base: type, name: str) -> Iterator[str]:
    expected = inspect.getattr_static(base, name)
    given = inspect.getattr_static(found, name)
    if given is expected:
        return
    bound, owner = getattr(found, name), getattr(base, name)
    if isinstance(expected, classmethod) and not isinstance(given, classmethod):
        yield f"{name} must be a classmethod"
        return
    if not callable(bound):
        yield f"{name} must be a method, not {type(bound).__name__}"
        return
    if _is_async(owner) and not _is_async(bound):
        yield f"{name} must be async (async def {name})"
    elif _is_async(bound) and not _is_async(owner):
        yield f"{name} must not be async"
    yield from _problems_of_signature(bound, owner, name)


def _is_async(function: Any) -> bool:
    # A decorator may hide it from its own wrapper, but not behind it.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        inspect.unwrap(function)
    )


def _problems_of_signature(bound: Any, owner: Any, name: str) -> Iterator[str]:
    arguments = [
        one.name for one in inspect.signature(owner).parameters.values() if one.kind in _CALLED_WITH
    ]
    try:
        signature = inspect.signature(bound)
    except (TypeError, ValueError):
        return  # written in C: it does not say what it takes
    try:
        signature.bind(*arguments)
    except TypeError as error:
        shown = [one for one in arguments if one != "self"]
        yield f"{name}{signature} cannot be called as {name}({', '.join(shown)}): {error}"
