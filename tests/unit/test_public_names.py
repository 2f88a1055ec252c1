"""Is there a public name for all that public methods hand out? A user annotates, and catches, by these names."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import redisworld
from redisworld.world.dead import DeadLetters
from redisworld.world.listing import Listing

HANDED_OUT_BY_ATTRIBUTE = (Listing, DeadLetters)
"""``world.listing`` and ``world.dead``."""

FOR_PARTS_OF_THE_PACKAGE = {
    (redisworld.World, "partition"),
    (redisworld.World, "create_run"),
    (redisworld.World, "steps"),
    (redisworld.Letter, "partition"),
    (redisworld.Letter, "message"),
}
"""Without an underscore, since others of the package use them; no page of docs/ has them."""

KNOWN = {
    *redisworld.__all__,
    *vars(builtins),
    *typing.__all__,
    *collections.abc.__all__,
    *("datetime", "timedelta", "uuid", "UUID", "stdlib_random", "Random"),  # of the standard library
    *("P", "R", "R_co", "T"),  # type variables
}


def public_classes() -> Iterator[type]:
    yield from (kind for kind in vars(redisworld).values() if isinstance(kind, type))
    yield from HANDED_OUT_BY_ATTRIBUTE


def handed_out(kind: type) -> Iterator[tuple[str, Any]]:
    """What comes from its public methods, properties and fields, as annotated."""
    for name, member in vars(kind).items():
        func = getattr(member, "fget", None) or getattr(member, "__func__", member)  # of a property, a classmethod
        if inspect.isfunction(func) and (not name.startswith("_") or name == "__call__"):
            yield name, func.__annotations__.get("return")
    if issubclass(kind, msgspec.Struct):
        yield from kind.__annotations__.items()


@pytest.mark.parametrize("kind", list(public_classes()), ids=lambda kind: kind.__name__)
def test_what_a_public_class_hands_out_has_a_public_name(kind: type) -> None:
    found = {name: said for name, said in handed_out(kind) if (kind, name) not in FOR_PARTS_OF_THE_PACKAGE}

    for name, said in found.items():
        assert isinstance(said, str), f"{kind.__name__}.{name} is not annotated"
        words = {node.id for node in ast.walk(ast.parse(said, mode="eval")) if isinstance(node, ast.Name)}
        assert words <= KNOWN, f"{kind.__name__}.{name} hands out {said}"


def test_what_is_for_the_package_alone_is_there() -> None:
    assert all(name in dict(handed_out(kind)) for kind, name in FOR_PARTS_OF_THE_PACKAGE)
