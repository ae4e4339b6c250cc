"""Loads the classes that a configuration names: ``module:Class`` or an installed entry point."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeVar

from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import PluginName
from kinesis_publishers.errors import PluginLoadError

_T = TypeVar("_T")


def load_plugin(option: Option[Any], name: str, base: type[_T]) -> type[_T]:
    """Return what ``name`` means to ``option``: a built-in class, ``module:Class``, an entry point.

    Raises:
        PluginLoadError: no package, or more than one, announces the entry point; or as for
            :func:`load_class`, for a built-in class with what to install.
    """
    parser: Any = option.parser
    if ":" in name:
        return load_class(name, base)
    if name in parser.built_in:
        reference, note = parser.built_in[name], f"pip install 'kinesis-publishers[{name}]'"
    else:
        reference, owner = _announced(parser, name)
        note = f"it is the entry point {name!r} of {owner}"
    try:
        return load_class(reference, base)
    except PluginLoadError as error:
        raise PluginLoadError(f"{option.full_key} = {name}: {error}; {note}") from error


def _announced(parser: PluginName, name: str) -> tuple[str, str]:
    """Return the class that an entry point names, and the package of the entry point."""
    # The import is slow, and most configurations name no entry point.
    from importlib.metadata import entry_points

    announced = entry_points(group=parser.group)
    # The same package may be found twice, for example if it is installed and on the path.
    owners = {
        f"{point.module}:{point.attr or ''}": (
            f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        )
        for point in announced.select(name=name)
    }
    if len(owners) > 1:
        rivals = "; ".join(sorted(f"{reference} of {one}" for reference, one in owners.items()))
        raise PluginLoadError(
            f"{name!r} of the group {parser.group!r} has several definitions ({rivals}): name the "
            "class itself as module:Class, or uninstall all but one"
        )
    if owners:
        return owners.popitem()
    installed = {one.name for one in announced}
    raise PluginLoadError(
        f"{name!r} is no entry point of the group {parser.group!r} (installed: "
        f"{', '.join(sorted(installed)) or 'none'}){_hint(name, installed.union(parser.built_in))}"
    )


def load_class(reference: str, base: type[_T]) -> type[_T]:
    """Return the class at ``module:Class``, a concrete subclass of ``base`` that can be used as it.

    With ``base=object`` any class fits.

    Raises:
        PluginLoadError: the module or the attribute is missing, importing fails, or it is not such
            a class.
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise PluginLoadError(f"{reference!r} is not of the form module:Class")
    try:
        # A module may import a name lazily.
        found: object = reduce(getattr, path.split("."), importlib.import_module(module_name))
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise PluginLoadError(_describe_failure(reference, module_name, error)) from error
    if not isinstance(found, type):
        raise PluginLoadError(
            f"{reference} is not a class but an object of type {type(found).__name__}: name the "
            "class itself"
        )
    check_fit(found, base, reference=reference)
    return found


def _describe_failure(reference: str, module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if module_name == error.name or module_name.startswith(f"{error.name}."):
            return (
                f"{reference}: there is no module {error.name!r}; install it in every process that "
                "reads (on Spark also on the executors)"
            )
        return f"{reference}: its module needs {error.name!r}, which is not installed"
    if isinstance(error, AttributeError) and error.name:
        hint = _hint(error.name, [name for name in dir(error.obj) if not name.startswith("_")])
        where = getattr(error.obj, "__name__", type(error.obj).__name__)
        return f"{reference}: {where} has no {error.name!r}{hint}"
    return f"{reference}: loading it failed with {type(error).__name__}: {error}"


def _hint(name: str, known: Iterable[str]) -> str:
    candidates = {one.upper(): one for one in known}
    near = difflib.get_close_matches(name.upper(), candidates, n=1)
    return f"; did you mean {candidates[near[0]]}?" if near else ""


def check_fit(found: type, base: type, *, reference: str) -> None:
    """Check that ``found``, which messages call ``reference``, can be used as ``base``.

    An async method that is never awaited would do nothing, and the reverse would fail only when it
    is called. For any other mismatch, Python's own error is clear enough.
    """
    if not issubclass(found, base):
        raise PluginLoadError(f"{reference} does not extend {base.__module__}.{base.__qualname__}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise PluginLoadError(f"{reference} is abstract: it lacks {', '.join(missing)}")
    _check_async(found, base, [name for name, _ in inspect.getmembers(base, callable)], reference)


def _check_async(found: object, base: object, names: Iterable[str], reference: str) -> None:
    problems = [
        f"{name} must be async (async def {name})" if must_be else f"{name} must not be async"
        for name in names
        if (must_be := _is_async(getattr(base, name))) is not _is_async(getattr(found, name))
    ]
    if problems:
        raise PluginLoadError(f"{reference} does not fit: {'; '.join(problems)}")


def _is_async(function: Any) -> bool:
    # A decorator may hide it from its own wrapper, but not behind it.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        inspect.unwrap(function)
    )


def with_overrides(defaults: _T, by: object) -> _T:
    """Return ``defaults``, an interface of optional methods, with those that ``by`` has.

    They must be async, or not, as :func:`check_fit` says.
    """
    methods = [name for name, one in vars(type(defaults)).items() if inspect.isfunction(one)]
    own = [name for name in methods if hasattr(by, name)]
    _check_async(by, defaults, own, f"{type(by).__module__}:{type(by).__qualname__}")
    for name in own:
        setattr(defaults, name, getattr(by, name))
    return defaults
