"""How is a game made from a seed, and how does one that was lost become short?

A game is a list of moves, each a value: a name and what was drawn for it. A move that does not apply is left out, so
any part of a game is a game, and shrinking is leaving moves out. (Rules of hypothesis were tried: half of the time
went into drawing, and most rules that it drew went nowhere.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Move = tuple[str, dict[str, Any]]
Draw = Callable[[random.Random], Any]
Method = TypeVar("Method", bound=Callable[..., None])

_MOVES: dict[str, tuple[int, bool, dict[str, Draw]]] = {}


def one_of(values: Sequence[Any]) -> Draw:
    return lambda rng: rng.choice(values)


def some_of(values: Sequence[Any], *, most: int) -> Draw:
    return lambda rng: [rng.choice(values) for _ in range(rng.randint(0, most))]


def move(weight: int, *, trouble: bool = False, **drawn: Draw) -> Callable[[Method], Method]:
    """A method that is a move, drawn as often as its weight says; of the troubles each game has some only."""

    def register(method: Method) -> Method:
        _MOVES[method.__name__] = weight, trouble, drawn
        return method

    return register


def write(seed: int, steps: int) -> list[Move]:
    """The moves of a game."""
    rng = random.Random(seed)
    names = [name for name, (_, trouble, _) in _MOVES.items() if not trouble or rng.random() < 0.5]
    weights = [_MOVES[name][0] for name in names]
    return [
        (name, {argument: draw(rng) for argument, draw in _MOVES[name][2].items()})
        for name in rng.choices(names, weights, k=steps)
    ]


def shorten(moves: list[Move], fails: Callable[[list[Move]], bool], *, tries: int = 300) -> list[Move]:
    """Leave out what is not needed for the game to fail, from large parts to single moves."""
    size = len(moves) // 2
    while size:
        at = 0
        while at < len(moves) and tries:
            shorter = moves[:at] + moves[at + size :]
            tries -= 1
            if fails(shorter):
                moves = shorter
            else:
                at += size
        size //= 2
    return moves
