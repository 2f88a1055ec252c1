"""How is redisworld used from a shell? ``main`` is the console script ``redisworld``; one file per noun."""

from redisworld.cli.program import main

__all__ = ["main"]
