"""How is a function of the standard library replaced for bodies only, also where it was imported by name before?"""

from __future__ import annotations

import functools
import importlib
import sys
from asyncio import events
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from redisworld.replay.loop import ReplayLoop
from redisworld.replay.reach import acting_body

_TAKES_NAMES: Final = frozenset({"random", "uuid", "secrets", "tempfile"})
"""Modules of the standard library that imported such functions by name, and must see the stand-ins."""

_HOLDS_ORIGINALS: Final = ("redisworld.replay.", "redisworld.clock")
"""The stand-ins need the originals that they replace; and the worker's own time is never a body's."""

_CAPTURABLE: Final = (BuiltinFunctionType, FunctionType, MethodType)

Replaced = dict[int, tuple[object, object]]
"""Originals and their stand-ins, by the original's id; the original is kept so that the id stays its own."""


class _Place:
    """Where a stand-in lives: what it is bound to, so that pickle finds it by its place, as it would the original."""

    __slots__ = ("module",)

    def __init__(self, module: str) -> None:
        self.module = module

    def __reduce__(self) -> tuple[Callable[..., ModuleType], tuple[str]]:
        return importlib.import_module, (self.module,)

    def __repr__(self) -> str:
        return f"<module {self.module}>"


def stand_in(module: ModuleType, name: str, in_body: Callable[..., Any], *, plain: bool = False) -> Callable[..., Any]:
    """A callable for ``module.name`` that calls ``in_body(body, …)`` in a body and the original elsewhere.

    ``plain``: the original takes no argument, which saves a third of the cost. Like a builtin, and unlike a function,
    the stand-in does not become a method when a class keeps it as an attribute: it is bound already.
    """
    original = getattr(module, name)
    running, replay_loop, acting = events._get_running_loop, ReplayLoop, acting_body

    def without(place: _Place) -> Any:
        if type(running()) is replay_loop and (body := acting()) is not None:
            return in_body(body)
        return original()

    def forwarding(place: _Place, /, *args: Any, **kwargs: Any) -> Any:
        if type(running()) is replay_loop and (body := acting()) is not None:
            return in_body(body, *args, **kwargs)
        return original(*args, **kwargs)

    call: Callable[..., Any] = without if plain else forwarding
    functools.update_wrapper(call, original)
    del call.__wrapped__  # type: ignore[attr-defined]  # inspect would ask the original, which counts no place
    call.__name__, call.__module__ = name, module.__name__
    return MethodType(call, _Place(module.__name__))


def replace(module: ModuleType, stand_ins: Mapping[str, Callable[..., Any]], replaced: Replaced) -> None:
    """Put stand-ins into a module, and note what they replace."""
    for name, new in stand_ins.items():
        old = getattr(module, name)
        replaced[id(old)] = (old, new)
        setattr(module, name, new)


def replace_captured(replaced: Replaced, renewed: tuple[type, ...] = ()) -> None:
    """Replace originals that modules captured before: globals, class attributes, defaults and closures of functions.

    ``renewed`` are classes whose own methods have been replaced: bound ones captured before are looked up again.
    """

    def new(value: object) -> object:
        if not isinstance(value, _CAPTURABLE):
            return value
        if id(value) in replaced:
            return replaced[id(value)][1]
        owner = getattr(value, "__self__", None)
        if isinstance(value, BuiltinFunctionType) and isinstance(owner, type) and issubclass(owner, renewed):
            return getattr(owner, value.__name__, value)
        return value

    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if type(module) is ModuleType and (name in _TAKES_NAMES or _is_foreign(name)):
            _renew_module(module, new)


def _is_foreign(name: object) -> bool:
    # __main__ counts as one of the standard library, but is the application's.
    if not isinstance(name, str) or name.startswith(_HOLDS_ORIGINALS):
        return False
    return name == "__main__" or name.partition(".")[0] not in sys.stdlib_module_names


def _renew_module(module: ModuleType, new: Callable[[object], object]) -> None:
    space = vars(module)
    for name, value in list(space.items()):
        if (other := new(value)) is not value:
            space[name] = other
        elif isinstance(value, type) and value.__module__ == module.__name__:
            _renew_class(value, new)
        elif isinstance(value, FunctionType):
            _renew_function(value, new)


def _renew_class(kind: type, new: Callable[[object], object]) -> None:
    for name, value in list(vars(kind).items()):
        if (other := new(value)) is not value:
            setattr(kind, name, other)
        for function in _functions(value):
            _renew_function(function, new)


def _functions(value: object) -> Iterator[FunctionType]:
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    if isinstance(inner, FunctionType):
        yield inner


def _renew_function(function: FunctionType, new: Callable[[object], object]) -> None:
    if function.__defaults__:
        renewed = tuple(map(new, function.__defaults__))
        if any(a is not b for a, b in zip(renewed, function.__defaults__, strict=True)):
            function.__defaults__ = renewed
    if function.__kwdefaults__:
        for name, value in function.__kwdefaults__.items():
            function.__kwdefaults__[name] = new(value)
    if function.__globals__.get("__name__", "").startswith(_HOLDS_ORIGINALS):
        return
    for cell in function.__closure__ or ():  # where a dataclass keeps a default_factory
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # empty
        if (other := new(value)) is not value:
            cell.cell_contents = other
