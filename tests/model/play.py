"""Does Redis follow the model through these games? A lost game is told in as few moves as it takes."""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.machine import Game
from tests.model.script import Move, shorten, write
from tests.model.stage import Stage


def play(stage: Stage, seeds: Iterable[int], steps: int, *, short: bool = True) -> None:
    """Play one game for each seed. Raises AssertionError with the story of the first that is lost."""
    for seed in seeds:
        moves = write(seed, steps)
        if lost(stage, moves) is None:
            continue
        if short:
            moves = shorten(moves, lambda fewer: lost(stage, fewer) is not None)
        raise AssertionError(f"game {seed}:\n{lost(stage, moves)}")


def lost(stage: Stage, moves: list[Move]) -> str | None:
    """The story of a game up to where Redis and the model part; None where they never do."""
    game = Game(stage)
    try:
        game.play(moves)
    except AssertionError as error:
        return "\n".join([*game.story, str(error)])
    return None
