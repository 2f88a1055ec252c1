"""How do JSON arguments become what a workflow's annotations name?

JSON knows neither dates nor dataclasses. Where a parameter is annotated, its value is converted, and one that does
not fit is refused here, before a run exists that could only fail.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from redisworld.errors import InvalidArguments, InvalidValue
from redisworld.restoring import names_a_type, restore
from redisworld.workflows import Workflow

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def fit(
    workflow: Workflow[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to start the workflow with. Raises InvalidArguments naming the argument."""
    signature = inspect.signature(workflow.func)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArguments(f"workflow {workflow.name}: {error}; its parameters are {signature}") from error
    try:
        hints = typing.get_type_hints(workflow.func, include_extras=True)
    except Exception:  # the edge of user code: start() names the annotation that cannot be resolved
        return bound.args, bound.kwargs
    for name, value in bound.arguments.items():
        if name in hints and signature.parameters[name].kind not in _VARIADIC:
            bound.arguments[name] = _fitted(value, hints[name], f"workflow {workflow.name}: argument {name!r}")
    return bound.args, bound.kwargs


def _fitted(value: Any, hint: Any, where: str) -> Any:
    try:
        if names_a_type(hint):
            return restore(value, hint, where)
        return msgspec.convert(value, hint, dec_hook=_custom)
    except InvalidValue as error:
        raise InvalidArguments(str(error)) from error
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"{where}: {error}") from error
    except TypeError:  # an annotation msgspec cannot read: start() judges the value as it is
        return value


def _custom(wanted: type, value: Any) -> Any:
    if issubclass(wanted, PurePath) and isinstance(value, str):
        return wanted(value)
    if isinstance(value, wanted):
        return value
    raise msgspec.ValidationError(f"a {type(value).__name__} from JSON is no {wanted.__name__}")
