"""How does one play the model for longer than CI does? ``python -m tests.model --games 5000 --seed 7``"""

from __future__ import annotations

import argparse
import random
import time

from redisworld.spawn import private_redis
from tests.model.machine import Game
from tests.model.play import play
from tests.model.stage import stage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    began = time.monotonic()
    with private_redis() as server, stage(server.url) as found:
        try:
            play(found, range(given.seed, given.seed + given.games), given.steps)
        finally:
            for what, times in sorted(Game.reached.items()):
                print(f"{times:8} {what}")
            print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
