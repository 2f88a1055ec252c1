"""Do the games go well that once found a fault? Each is the shortest that showed it."""

from __future__ import annotations

from tests.model.machine import Game
from tests.model.passes import Wish
from tests.model.stage import stage


def test_a_retry_between_load_and_claim_of_a_redelivered_owner_loses_no_step(redis_url: str) -> None:
    """Promise 2, and section 10: an inline step that retries becomes an ordinary queued message.

    The claim of the former owner once started the step under ``start`` without ``own:start``; the queued message was
    stale and settled; when this worker crashed too, the load of ``start`` was settled, and the step ran for ever.
    """
    with stage(redis_url) as found:
        game = Game(found)
        # given an owner of s1 whose lease is lost; the taker has loaded, and knows that it owns s1
        game.start("a", "r1")
        game.read("a", 6)
        game.load(0)
        game.commit(0, [Wish("inline", "s1")], "")
        game.lose_a_lease("b", 0)
        game.load(0)
        # when the first worker's retry is faster than the taker's claim, and the retried message is met meanwhile
        game.complete(0, "retrying", may_replay=True, delay_ms=0, drain=False)
        game.claim_what_the_message_owns(0, 4)
        game.read("a", 6)
        game.claim(0, 4, may_replay=True, ensure=True)
        # then the step has a message, also once the taker has crashed
        game.lose_a_lease("a", 0)
        game.load(0)
