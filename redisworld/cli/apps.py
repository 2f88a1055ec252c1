"""How does ``module:attribute`` on a command line become the application's objects?"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from types import ModuleType
from typing import Any

from redisworld.errors import InvalidInput, NotRegistered
from redisworld.workflows import Workflow, Workflows

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DEFAULT_ATTRIBUTE = "wf"


def load_app(reference: str) -> Workflows:
    """The Workflows object ``module:attribute`` names (``wf`` without an attribute). Raises InvalidInput."""
    module, attribute = _split(reference)
    loaded = _import(module)
    found = getattr(loaded, attribute, None)
    if isinstance(found, Workflows):
        return found
    if isinstance(found, Workflow):
        raise InvalidInput(
            f"{module}:{attribute} is one workflow, and a worker takes a Workflows object; {_has(loaded)}"
        )
    if not hasattr(loaded, attribute):
        raise InvalidInput(f"module {module} has no attribute {attribute!r}; {_has(loaded)}")
    raise InvalidInput(
        f"{module}:{attribute} is of type {type(found).__name__}, not a Workflows object; {_has(loaded)}"
    )


def load_workflow(reference: str) -> Workflow[..., Any]:
    """The workflow ``module:name`` names: an attribute, or the name one is registered under.

    Raises InvalidInput for a module that cannot be imported or another kind of object, NotRegistered for a name
    that no Workflows object of the module knows.
    """
    module, attribute = _split(reference)
    loaded = _import(module)
    found = getattr(loaded, attribute, None)
    if isinstance(found, Workflow):
        return found
    for registry in _registries(loaded).values():
        if (workflow := registry.workflows.get(attribute)) is not None:
            return workflow
    if isinstance(found, Workflows):
        raise InvalidInput(f"{module}:{attribute} is the registry, name a workflow in it; {_knows(loaded)}")
    if hasattr(loaded, attribute):
        raise InvalidInput(f"{module}:{attribute} is of type {type(found).__name__}, not a workflow; {_knows(loaded)}")
    raise NotRegistered(f"no workflow {attribute!r} is registered in {module}; {_knows(loaded)}")


def _split(reference: str) -> tuple[str, str]:
    module, colon, attribute = reference.partition(":")
    if not _MODULE.fullmatch(module) or (colon and not attribute):
        raise InvalidInput(f"cannot read {reference!r}: write module:attribute, like app:wf or package.module:wf")
    return module, attribute or _DEFAULT_ATTRIBUTE


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # the console script's path begins with its own directory instead
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; write {name.removesuffix('.py')} without .py" if name.endswith(".py") else ""
            raise InvalidInput(f"there is no module {name!r} (looked in {here} and the Python path){hint}") from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:  # the edge of user code
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> InvalidInput:
    where = traceback.extract_tb(error.__traceback__)[-1]
    ours = where.filename.startswith("<frozen")  # the import machinery itself: nothing to look at there
    place = "" if ours else f" ({where.filename}:{where.lineno})"
    return InvalidInput(f"module {name!r} cannot be imported: {type(error).__name__}: {error}{place}")


def _registries(module: ModuleType) -> dict[str, Workflows]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Workflows)}


def _has(module: ModuleType) -> str:
    found = ", ".join(f"{module.__name__}:{name}" for name in _registries(module))
    return f"it has {found}" if found else "it has no Workflows object at all"


def _knows(module: ModuleType) -> str:
    registries = _registries(module).values()
    names = {name for registry in registries for name in registry.workflows}
    registered = [workflow for registry in registries for workflow in registry.workflows.values()]
    for name, value in vars(module).items():
        if isinstance(value, Workflow) and not any(value is workflow for workflow in registered):
            names.add(name)  # imported from where its registry is
    return f"it has {', '.join(sorted(names)) or 'no workflows'}"
