"""Loads the classes that a configuration names: ``module:Class`` or an installed entry point."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kinesis_publishers.config.sections.checkpoints import BUILT_IN_STORES
from kinesis_publishers.config.sections.leases import BUILT_IN_ASSIGNERS
from kinesis_publishers.config.sections.producing import RANDOM
from kinesis_publishers.config.sections.source import BUILT_IN_PUBLISHERS
from kinesis_publishers.errors import PluginLoadError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# The entry-point groups in which packages announce what can be replaced.
RECORD_PUBLISHERS_GROUP: Final = "kinesis_publishers.record_publishers"
CHECKPOINT_STORES_GROUP: Final = "kinesis_publishers.checkpoint_stores"
SHARD_ASSIGNERS_GROUP: Final = "kinesis_publishers.shard_assigners"
PARTITIONERS_GROUP: Final = "kinesis_publishers.partitioners"

_BUILT_IN: Final = {
    RECORD_PUBLISHERS_GROUP: BUILT_IN_PUBLISHERS,
    CHECKPOINT_STORES_GROUP: BUILT_IN_STORES,
    SHARD_ASSIGNERS_GROUP: BUILT_IN_ASSIGNERS,
    PARTITIONERS_GROUP: (RANDOM,),
}

_T = TypeVar("_T")


def load_plugin(name: str, base: type[_T], *, group: str = RECORD_PUBLISHERS_GROUP) -> type[_T]:
    """Return the class that ``name`` means: ``module:Class``, else an entry point of ``group``.

    Raises:
        PluginLoadError: no package, or more than one, announces it; or as for :func:`load_class`.
    """
    if ":" in name:
        return load_class(name, base)
    # Slow to import, and most configurations name no entry point.
    from importlib.metadata import entry_points

    announced = entry_points(group=group)
    # The same package may be found twice, as when it is installed and on the path as well.
    candidates = {_reference(point): point for point in announced if point.name == name}
    if len(candidates) > 1:
        raise PluginLoadError(_describe_rivals(name, list(candidates.values()), group))
    if not candidates:
        raise PluginLoadError(_describe_missing_name(name, {one.name for one in announced}, group))
    ((reference, point),) = candidates.items()
    return load_class(
        reference, base, shown=f"{reference} (entry point {name!r} of {_owner(point)})"
    )


def load_class(reference: str, base: type[_T], *, shown: str = "") -> type[_T]:
    """Return the class at ``module:Class``, a concrete subclass of ``base`` that can be used as it.

    With ``base=object`` any class will do; ``shown`` is what messages call it.

    Raises:
        PluginLoadError: the module or the attribute is missing, importing fails, or it is not such
            a class; says what is missing.
    """
    shown = shown or reference
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise PluginLoadError(f"{shown!r} is not of the form module:Class")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise PluginLoadError(_describe_import_failure(shown, module_name, error)) from error
    for attribute in path.split("."):
        found = _attribute_of(found, attribute, shown)
    if not isinstance(found, type):
        raise PluginLoadError(
            f"{shown} is not a class but an object of type {type(found).__name__}: name the class "
            "itself"
        )
    check_fit(found, base, reference=shown)
    return found


def _attribute_of(owner: object, attribute: str, shown: str) -> object:
    try:
        return getattr(owner, attribute)
    except AttributeError:
        message = _describe_missing_attribute(shown, owner, attribute)
    except Exception as error:  # a module may import what it offers only now
        message = f"{shown}: reading {attribute} failed with {type(error).__name__}: {error}"
        raise PluginLoadError(message) from error
    raise PluginLoadError(message)


def _reference(point: EntryPoint) -> str:
    return point.value.partition("[")[0].replace(" ", "")


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _describe_rivals(name: str, points: list[EntryPoint], group: str) -> str:
    rivals = "; ".join(sorted(f"{_reference(one)} of {_owner(one)}" for one in points))
    return (
        f"{name!r} of the group {group!r} is announced more than once ({rivals}): name the class "
        "itself as module:Class, or uninstall all but one"
    )


def _describe_missing_name(name: str, installed: set[str], group: str) -> str:
    hint = _hint(name, installed.union(_BUILT_IN.get(group, ())))
    listed = ", ".join(sorted(installed)) or "none"
    return f"{name!r} is no entry point of the group {group!r} (installed: {listed}){hint}"


def _describe_import_failure(reference: str, module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if module_name == error.name or module_name.startswith(f"{error.name}."):
            return (
                f"{reference}: there is no module {error.name!r}; install it in every process that "
                "reads (on Spark also on the executors)"
            )
        return f"{reference}: its module needs {error.name!r}, which is not installed"
    return f"{reference}: importing its module failed with {type(error).__name__}: {error}"


def _describe_missing_attribute(reference: str, owner: object, attribute: str) -> str:
    hint = _hint(attribute, [name for name in dir(owner) if not name.startswith("_")])
    where = getattr(owner, "__name__", type(owner).__name__)
    return f"{reference}: {where} has no {attribute!r}{hint}"


def _hint(name: str, known: Iterable[str]) -> str:
    candidates = {one.upper(): one for one in known}
    near = difflib.get_close_matches(name.upper(), candidates, n=1)
    return f"; did you mean {candidates[near[0]]}?" if near else ""


# How a class is made is its own affair.
_ITS_OWN = frozenset({"__init__", "__init_subclass__"})
_CALLED_WITH = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_fit(found: type, base: type, *, reference: str) -> None:
    """Check that what calls ``base`` can call ``found``, which messages call ``reference``.

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
        if isinstance(member, FunctionType | classmethod) and name not in _ITS_OWN
        # Special, or not private.
        if re.fullmatch(r"__\w+__|(?!_)\w+", name)
    ]


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
