"""Does a run come to its end whatever two workers do to each other: lost leases, crashes, repeats, chunks?

A small body, written as a function of the log's prefix, is driven by two workers in a random order of calls; at any
point a delivery may be taken from its holder, who goes on without knowing, and every call may be made twice. Then one
worker does all that is left in good order, and the run must be complete: every step that the body asks for is there
and has ended, no message is left, and nobody waits for a wake.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from redisworld import events
from redisworld.events import Event
from redisworld.world import Delivery, Loaded
from tests.scripts.driver import RUN, Attempt, Consumer, Item, Turn, consumers, inline, message_id, step

pytestmark = pytest.mark.anyio

DEPTH = 3


def body(log: list[Event]) -> dict[str, tuple[str, str]]:
    """What the body has asked for after these events: id -> kind and join group. Ends beget new steps and waits."""
    over = {e.id for e in log if e.kind in ("step_completed", "step_failed", "wait_completed")}
    asked: dict[str, tuple[str, str]] = {"s0": ("step", "")}
    todo = ["s0"]
    while todo:
        parent = todo.pop(0)
        if parent not in over or len(parent) > 2 * DEPTH:
            continue
        group = asked[parent][1]
        if group and not all(m in over for m, (_, g) in asked.items() if g == group):
            continue
        shape = zlib.crc32(parent.encode()) % 4
        children = [f"{parent}{n}" for n in range((1, 2, 3, 1)[shape])]
        for child in children:
            kind = "wait" if shape == 3 else "step"
            asked[child] = (kind, f"g{parent}" if len(children) > 1 else "")
            todo.append(child)
    return asked


class Hand(msgspec.Struct):
    """What one worker holds, or believes to hold, and what it does with it next."""

    worker: Consumer
    delivery: Delivery
    does: str
    attempt: Attempt | None = None
    turn: Turn | None = None
    owned: str = ""


class Chaos:
    def __init__(self, workers: list[Consumer], seed: int) -> None:
        self.workers = workers
        self.random = random.Random(seed)
        self.hands: list[Hand] = []
        self.orderly = False
        self.trace: list[str] = []

    async def ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call; sometimes its reply is lost and it is made again."""
        answer = await call()
        if not self.orderly and self.random.random() < 0.1:
            answer = await call()
        return answer

    async def read(self, worker: Consumer) -> None:
        for stream in ("steps", "workflows"):
            for delivery in await worker.read(stream, count=3):
                self.hands.append(Hand(worker, delivery, self.first(delivery)))

    def first(self, delivery: Delivery) -> str:
        return "claim" if delivery.kind == "step" else "load"

    async def steal(self) -> None:
        hand = self.random.choice(self.hands)
        if await hand.worker.pending(hand.delivery):
            other = next(w for w in self.workers if w is not hand.worker)
            self.hands.append(Hand(other, await other.take(hand.delivery), self.first(hand.delivery)))

    async def turn_of(self, hand: Hand) -> None:
        self.trace.append(f"{self.workers.index(hand.worker)} {hand.does} {message_id(hand.delivery)} {hand.owned}")
        following = await getattr(self, hand.does)(hand)
        if following is None:
            self.hands.remove(hand)
        else:
            hand.does = following

    # -- what a worker does; each answers what it does next, None when it is done with the message

    async def claim(self, hand: Hand) -> str | None:
        step_id = hand.owned or hand.delivery.text("step")
        item = hand.worker.claim_item(hand.delivery, step_id=step_id, attempts_allowed=3, owned=bool(hand.owned))
        claim = await self.ask(lambda: hand.worker.world.deliveries.claim(item))
        self.trace.append(f"  {claim.outcome} {claim.detail} {claim.step_id}")
        if claim.outcome == "started":
            hand.attempt = Attempt(hand.delivery, item, claim)
            return "finish"
        if claim.detail == "owned":
            hand.owned = claim.step_id
            return "claim"
        if claim.detail == "responsible":
            hand.owned = ""
            return "load"
        if claim.outcome in ("too_early", "missing"):
            await hand.worker.move(hand.delivery, delay_ms=max(1, claim.wait_ms))
        return None

    async def finish(self, hand: Hand) -> str | None:
        assert hand.attempt is not None
        outcome = self.random.choice(["completed", "completed", "failed", "retrying", "retrying"])
        if self.orderly:
            outcome = "completed"
        changes = {"delay_ms": self.random.choice([0, 20]), "cause": self.random.choice(["error", "drain"])}
        item = hand.worker.completion(
            hand.attempt, outcome, may_replay=self.orderly or self.random.random() < 0.7, **changes
        )
        record = await self.ask(lambda: hand.worker.world.deliveries.complete(item))
        self.trace.append(f"  {outcome}: {record.outcome} {record.detail}")
        hand.owned = ""
        return "load" if record.detail == "responsible" else None

    async def load(self, hand: Hand) -> str | None:
        hand.turn = await self.ask(lambda: hand.worker.load(hand.delivery))
        assert hand.turn is not None
        loaded = hand.turn.loaded
        self.trace.append(f"  {loaded.outcome} {loaded.owned} length={loaded.length} replayed={loaded.replayed_to}")
        hand.owned = loaded.owned
        if loaded.outcome != "loaded":
            return None
        return "claim" if loaded.owned else "commit"

    async def commit(self, hand: Hand) -> str | None:
        assert hand.turn is not None
        loaded, token = hand.turn.loaded, hand.worker.world.next_token()
        items, chosen = self.items(loaded, hand.worker)
        turn, worker, chunk = hand.turn, hand.worker, 1
        if items[:1] and items[0][0] == "step" and self.random.random() < 0.3:  # inline goes with the last
            await self.ask(lambda: worker.commit(turn, *items[:1], last=False, token=token))
            items, chunk = items[1:], 2
            if not self.orderly and self.random.random() < 0.4:
                return None  # crashed between its chunks
        answer = await self.ask(lambda: worker.commit(turn, *items, chunk=chunk, token=token))
        self.trace.append(f"  {answer.outcome} {answer.detail} inline={answer.inline} {[i[:2] for i in items]}")
        if answer.inline:
            hand.attempt = Attempt(
                hand.delivery,
                worker.claim_item(hand.delivery, step_id=str(chosen[1]), token=str(chosen[-1])),
                None,  # type: ignore[arg-type]
            )
            return "finish"
        return "load" if answer.outcome == "again" or (answer.outcome, answer.detail) == ("lost", "1") else None

    def items(self, loaded: Loaded, worker: Consumer) -> tuple[list[Item], Item]:
        """What the body asks for beyond what it sees created; the chosen one is to run inline, and comes last."""
        log = [events.parse(element) for element in loaded.elements]
        created = {e.id for e in log if e.kind in ("step_created", "wait_created")}
        new = {i: what for i, what in body(log).items() if i not in created}
        steps = [step(i, group) for i, (kind, group) in new.items() if kind == "step"]
        waits: list[Item] = [["wait", i, worker.clock.now + 30] for i, (kind, _) in new.items() if kind == "wait"]
        groups = dict.fromkeys(group for _, group in new.values() if group)
        seals: list[Item] = [["seal", g, ("all", "fail_fast")[zlib.crc32(g.encode()) % 2]] for g in groups]
        chosen: Item = []
        if steps and self.random.random() < 0.5:
            first = steps.pop(0)
            chosen = inline(str(first[1]), worker.world.next_token(), str(first[3]))
        return [*steps, *([chosen] if chosen else []), *waits, *seals], chosen

    # -- the play

    async def run(self, moves: int) -> None:
        for _ in range(moves):
            choice = self.random.random()
            worker = self.random.choice(self.workers)
            if choice < 0.25 or not self.hands:
                await self.read(worker)
            elif choice < 0.35:
                worker.clock.advance(self.random.choice([1, 20]))
                await self.ask(lambda w=worker: w.world.upkeep.promote(w.partition))  # type: ignore[misc]
            elif choice < 0.47:
                await self.steal()
            elif choice < 0.52:
                self.hands.remove(self.random.choice(self.hands))  # a crash: the lease will run out
            else:
                await self.turn_of(self.random.choice(self.hands))

    async def clean_up(self) -> None:
        """All workers crash; one takes over what they held and does what is left."""
        self.orderly, self.hands = True, []
        worker = self.workers[0]
        for _ in range(400):
            for stream in ("steps", "workflows"):
                key = worker.partition.tag + stream
                for entry in await worker.redis.xpending_range(key, "workers", "-", "+", count=1000):
                    ((entry_id, fields),) = await worker.redis.xrange(key, entry["message_id"], entry["message_id"])
                    held = Delivery(
                        worker.partition, stream, entry_id.decode(), {k.decode(): v for k, v in fields.items()}
                    )
                    self.hands.append(Hand(worker, await worker.take(held), self.first(held)))
            await self.read(worker)
            while self.hands:
                await self.turn_of(self.hands[0])
            worker.clock.advance(50)
            until, _ = await worker.world.upkeep.promote(worker.partition)
            left = sum([await worker.redis.xlen(worker.partition.tag + s) for s in ("steps", "workflows")])
            if until is None and not left:
                return
        raise AssertionError("messages go round for ever")


@pytest.mark.parametrize("seed", range(40))
async def test_a_run_comes_to_its_end_whatever_happened_on_the_way(redis_url: str, seed: int) -> None:
    async with consumers(redis_url, 2, max_log_events=10_000) as workers:
        a, chaos = workers[0], Chaos(workers, seed)
        await a.start()
        for worker in workers:
            await worker.world.queue.ensure_groups([(a.partition, "steps"), (a.partition, "workflows")])

        await chaos.run(150)
        await chaos.clean_up()

        log, row = await a.log(), await a.row()
        story = "\n".join([*chaos.trace[-40:], *(f"{e.kind} {e.id} {e.attempt}" for e in log[-30:])])
        created = [e.id for e in log if e.kind in ("step_created", "wait_created")]
        ended = [e.id for e in log if e.kind in ("step_completed", "step_failed", "wait_completed")]
        starts = [(e.id, e.attempt) for e in log if e.kind == "step_started"]
        assert len(log) < a.world.settings.log_page, "the body saw less than the whole log"
        assert sorted(created) == sorted(body(log)), f"not all that the body asks for exists, or twice\n{story}"
        assert sorted(ended) == sorted(created), f"not all has ended, or twice\n{story}"
        assert len(set(starts)) == len(starts), f"one attempt started twice\n{story}"
        assert (row.wake, row.woken_at <= row.replayed_to) == ("", True), f"somebody waits for a wake\n{story}"
        assert not [f for f in await a.redis.hkeys(a.key()) if f.startswith(b"own:")], f"a step is still owned\n{story}"
        assert row.run_id == RUN
