"""When does the end of a step wake the body? What join groups promise, and a model of it (design section 8)."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redisworld.world import Delivery
from tests.scripts.driver import Attempt, Consumer, Item, step

pytestmark = pytest.mark.anyio


async def dispatched(a: Consumer, *assignments: str, mode: str = "all") -> list[Attempt]:
    """Steps s0, s1 ... with these groups, dispatched by a pass that is over, each claimed."""
    deliveries = await a.dispatch(*(step(f"s{n}", group) for n, group in enumerate(assignments)), mode=mode)
    return [await a.claim(delivery) for delivery in deliveries.values()]


async def ends(a: Consumer, *outcomes: tuple[Attempt, str]) -> list[str]:
    return [(await a.complete(attempt, outcome)).detail for attempt, outcome in outcomes]


# -- who wakes


async def test_in_a_group_of_mode_all_only_the_last_end_wakes(a: Consumer) -> None:
    s = await dispatched(a, "g1", "g1", "g1")

    told = await ends(a, (s[0], "failed"), (s[1], "completed"), (s[2], "failed"))

    assert told == ["settled", "settled", "responsible"]


async def test_in_a_fail_fast_group_each_failure_and_the_last_end_wake(a: Consumer) -> None:
    """More often than design section 8's "once": a failure that leaves the group must not silence the next one."""
    s = await dispatched(a, "g1", "g1", "g1", "g1", mode="fail_fast")

    told = []
    for attempt, outcome in zip(s, ["completed", "failed", "failed", "completed"], strict=True):
        told += await ends(a, (attempt, outcome))
        await a.later_pass()

    assert told == ["settled", "responsible", "responsible", "responsible"]


@pytest.mark.parametrize("outcome", ["completed", "failed"])
@pytest.mark.parametrize(("group", "told"), [("", "responsible"), ("-", "settled")])
async def test_an_ungrouped_step_always_wakes_and_an_unobserved_one_never(
    a: Consumer, group: str, told: str, outcome: str
) -> None:
    (attempt,) = await dispatched(a, group)

    assert await ends(a, (attempt, outcome)) == [told]


async def test_groups_count_apart_from_each_other(a: Consumer) -> None:
    s = await dispatched(a, "g1", "g2", "g1", "g2")

    told = []
    for attempt in s:
        told += await ends(a, (attempt, "completed"))
        await a.later_pass()

    assert told == ["settled", "settled", "responsible", "responsible"]


async def test_a_retry_does_not_count_as_an_end(a: Consumer) -> None:
    s = await dispatched(a, "g1", "g1")
    await a.retry(s[0])
    assert await ends(a, (s[1], "completed")) == ["settled"]

    assert await ends(a, (await a.claim(await a.redelivered(s[0])), "completed")) == ["responsible"]


async def test_attempts_used_up_count_as_a_failure_of_the_group(a: Consumer) -> None:
    s = await dispatched(a, "g1", "g1", mode="fail_fast")

    answer = await a.claim(await a.take(s[0].delivery), attempts_allowed=1)

    assert (answer.outcome, answer.claim.detail) == ("exhausted", "responsible")


# -- chunks and the seal


async def chunked(a: Consumer, *outcomes: str, mode: str = "all") -> str:
    """A fan-out of three in two chunks, of which some end before the seal: what the sealing commit answers."""
    turn = await a.begin()
    await a.commit(turn, step("s0", "g1"), step("s1", "g1"), last=False, token="p")
    for delivery, outcome in zip((await a.steps_delivered()).values(), outcomes, strict=False):
        assert (await a.complete(await a.claim(delivery), outcome)).detail == "settled"
    return (await a.commit(turn, step("s2", "g1"), ["seal", "g1", mode], chunk=2, token="p")).outcome


async def test_ends_before_the_seal_are_silent_and_counted(a: Consumer) -> None:
    assert await chunked(a, "completed", "completed") == "committed"

    assert await ends(a, (await a.claim((await a.steps_delivered())["s2"]), "completed")) == ["responsible"]


async def test_a_failure_before_the_seal_is_told_by_the_seal(a: Consumer) -> None:
    assert await chunked(a, "failed", mode="fail_fast") == "again"


async def test_a_failure_before_the_seal_of_a_group_that_waits_for_all_is_silent(a: Consumer) -> None:
    assert await chunked(a, "failed", mode="all") == "committed"


async def test_a_group_all_of_which_ended_before_its_seal_is_told_by_the_seal(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s0", "g1"), last=False, token="p")
    await a.complete(await a.claim((await a.steps_delivered())["s0"]))

    assert (await a.commit(turn, ["seal", "g1", "all"], chunk=2, token="p")).outcome == "again"


# -- moves between groups. The pass has loaded; a step ends; the pass commits a move.


async def loaded_before(a: Consumer, *assignments: str, mode: str = "all") -> tuple[int, list[Attempt]]:
    s = await dispatched(a, *assignments, mode=mode)
    return (await a.row()).log_length, s


async def commit_seen(a: Consumer, consumed: int, *items: Item) -> bool:
    """Commit a pass that saw so much of the log; whether the run has news for the body afterwards."""
    row = await a.row()
    nobody = Delivery(a.partition, "workflows", "0-1", {})
    await a.world.deliveries.commit(
        nobody,
        row.run_id,
        "nobody",
        [part for item in items for part in item],
        replayed_to=row.replayed_to,
        consumed=consumed,
        pass_token=a.world.next_token(),
    )
    after = await a.row(row.run_id)
    assert (after.wake != "") == (after.woken_at > after.replayed_to)
    return after.woken_at > after.replayed_to


@pytest.mark.parametrize("old", ["-", "g1"])
async def test_an_unseen_end_is_told_when_its_step_moves_to_where_it_is_seen(a: Consumer, old: str) -> None:
    consumed, s = await loaded_before(a, old, "g1")
    await ends(a, (s[0], "completed"))

    assert await commit_seen(a, consumed, ["assign", "s0", ""])


async def test_an_unseen_end_is_told_once_and_not_again_by_the_next_commit(a: Consumer) -> None:
    consumed, s = await loaded_before(a, "g1", "g1")
    await ends(a, (s[0], "completed"))
    await commit_seen(a, consumed, ["assign", "s0", ""])

    assert not await commit_seen(a, (await a.row()).log_length, ["assign", "s0", ""])


async def test_an_end_counted_in_the_old_group_is_not_counted_in_the_new_one(a: Consumer) -> None:
    consumed, s = await loaded_before(a, "g1", "g1", "g2", "g2")
    await ends(a, (s[0], "completed"))

    assert not await commit_seen(a, consumed, ["assign", "s0", "g2"], ["seal", "g2", "all"])
    assert await ends(a, (s[2], "completed"), (s[3], "completed")) == ["settled", "responsible"]


async def test_an_open_step_that_moves_is_awaited_by_its_new_group_only(a: Consumer) -> None:
    consumed, s = await loaded_before(a, "g1", "g1", "g2")

    assert not await commit_seen(a, consumed, ["assign", "s1", "g2"], ["seal", "g2", "all"])
    assert await ends(a, (s[0], "completed")) == ["responsible"]
    await a.later_pass()
    assert await ends(a, (s[2], "completed"), (s[1], "completed")) == ["settled", "responsible"]


async def test_an_unseen_failure_that_moves_to_a_fail_fast_group_is_told(a: Consumer) -> None:
    consumed, s = await loaded_before(a, "g1", "g1", "g1")
    await ends(a, (s[0], "failed"))

    assert await commit_seen(a, consumed, ["assign", "s0", "g2"], ["assign", "s1", "g2"], ["seal", "g2", "fail_fast"])


async def test_a_group_grows_by_a_later_commit(a: Consumer) -> None:
    consumed, s = await loaded_before(a, "g1", "g1")
    await ends(a, (s[0], "completed"))

    assert not await commit_seen(a, consumed, step("s9", "g1"), ["seal", "g1", "all"])
    assert await ends(a, (s[1], "completed")) == ["settled"]
    assert await ends(a, (await a.claim((await a.steps_delivered())["s9"]), "completed")) == ["responsible"]


@pytest.mark.parametrize("target", ["-", "g2", ""])
async def test_a_group_that_is_done_once_its_last_open_step_moves_away_is_told(a: Consumer, target: str) -> None:
    # given a gather of three, of which two end after the load of the pass that abandons the third
    consumed, s = await loaded_before(a, "g1", "g1", "g1")
    await ends(a, (s[0], "completed"), (s[1], "completed"))

    # when that pass commits
    seal: list[Item] = [["seal", "g2", "all"]] if target == "g2" else []
    told = await commit_seen(a, consumed, ["assign", "s2", target], *seal)

    # then the body, whose gather is over, is told
    assert told


async def test_the_first_failure_of_a_group_is_told_although_a_failed_step_has_left_it(a: Consumer) -> None:
    # given a task group of three, a child of which fails unseen, while the body cancels that child
    consumed, s = await loaded_before(a, "g1", "g1", "g1", mode="fail_fast")
    await ends(a, (s[0], "failed"))
    await commit_seen(a, consumed, ["assign", "s0", "-"])
    await a.later_pass()

    # when another child fails
    # then the body is told: to it this is the first failure
    assert await ends(a, (s[1], "failed")) == ["responsible"]


# -- the model


class Model(msgspec.Struct):
    """What the body can see, in plain Python. Ends are log lengths right after the event."""

    groups: dict[int, str]
    modes: dict[str, str]
    ended: dict[int, int] = {}
    failed: set[int] = set()
    consumed: int = 0

    def unseen(self, n: int) -> bool:
        return self.ended.get(n, 0) > self.consumed

    def tells(self) -> bool:
        """Whether the body would go on if it saw the whole log now."""
        return any(self._tells(n) for n in self.groups if self.unseen(n))

    def _tells(self, n: int) -> bool:
        group = self.groups[n]
        if group in ("", "-"):
            return group == ""
        members = [m for m, g in self.groups.items() if g == group]
        if all(m in self.ended for m in members):
            return True
        seen_failure = any(m in self.failed and not self.unseen(m) for m in members)
        return self.modes[group] == "fail_fast" and n in self.failed and not seen_failure


STEPS = 5
GROUP = st.sampled_from(["", "-", "g1", "g2"])
MODE = st.sampled_from(["all", "fail_fast"])
END = st.tuples(st.just("end"), st.integers(0, STEPS - 1), st.booleans())
LOAD = st.tuples(st.just("load"))
COMMIT = st.tuples(st.just("commit"), st.dictionaries(st.integers(0, STEPS - 1), GROUP, max_size=3))
STILL = st.tuples(st.just("commit"), st.just({}))
numbers = itertools.count()


async def play(a: Consumer, first: list[str], modes: tuple[str, str], cut: int, ops: list[tuple[object, ...]]) -> None:
    """Play the operations on Redis and on the model; the model's news must never be without a wake."""
    run = f"run{next(numbers)}"
    model = Model(groups=dict(enumerate(first)), modes=dict(zip(("g1", "g2"), modes, strict=True)))
    turn = await a.begin(run)
    model.consumed = loaded = turn.loaded.length
    items = [step(f"s{n}", group, run=run) for n, group in enumerate(first)]
    if cut:
        await a.commit(turn, *items[:cut], last=False, token="p")
        await play_end(a, model, run, 0, True)
    await a.commit(turn, *items[cut:], *seals(model, first), chunk=2 if cut else 1, token="p")
    static = True
    for op in ops:
        if op[0] == "end":
            await play_end(a, model, run, int(op[1]), bool(op[2]))  # type: ignore[call-overload]
        elif op[0] == "load":
            loaded = (await a.row(run)).log_length
        else:
            moves = {n: g for n, g in op[1].items() if not 0 < model.ended.get(n, 0) <= loaded}  # type: ignore[attr-defined]
            static = static and not moves
            model.groups |= moves
            model.consumed = loaded
            assigns: list[Item] = [["assign", f"s{n}", g] for n, g in moves.items()]
            row = await a.row(run)
            await a.world.deliveries.commit(
                Delivery(a.partition, "workflows", "0-1", {}),
                run,
                "nobody",
                [part for item in [*assigns, *seals(model, moves.values())] for part in item],
                replayed_to=row.replayed_to,
                consumed=loaded,
                pass_token=a.world.next_token(),
            )
        row = await a.row(run)
        news = row.woken_at > row.replayed_to
        assert news >= model.tells(), f"after {op} the body can go on, but nobody is told"
        assert news <= model.tells() or not static, f"after {op} the body is woken for nothing"
        assert (row.wake != "") == news


async def play_end(a: Consumer, model: Model, run: str, n: int, failed: bool) -> None:
    for delivery in await a.read("steps"):
        await a.claim(delivery)
    steps = await a.world.steps(run)
    if n in model.ended or f"s{n}" not in steps:
        return
    nowhere = Delivery(a.partition, "steps", "0-1", {"run": run.encode(), "step": b"s%d" % n})
    state = steps[f"s{n}"]
    item = a.claim_item(
        msgspec.structs.replace(nowhere, fields={**nowhere.fields, "msg": step(f"s{n}", run=run)[5]}),  # type: ignore[dict-item]
        token=state.token,
    )
    record = await a.world.deliveries.complete(
        a.completion(Attempt(nowhere, item, None), "failed" if failed else "completed", may_replay=False)  # type: ignore[arg-type]
    )
    assert record.outcome in ("completed", "failed")
    model.ended = model.ended | {n: (await a.row(run)).log_length}
    if failed:
        model.failed = model.failed | {n}


def seals(model: Model, groups: object) -> list[Item]:
    return [["seal", g, model.modes[g]] for g in dict.fromkeys(groups) if g in model.modes]  # type: ignore[call-overload]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    first=st.lists(GROUP, min_size=STEPS, max_size=STEPS),
    modes=st.tuples(MODE, MODE),
    cut=st.integers(0, STEPS - 1),
    ops=st.lists(st.one_of(END, LOAD, STILL), max_size=14),
)
async def test_without_moves_the_body_is_woken_exactly_when_it_can_go_on(
    a: Consumer, first: list[str], modes: tuple[str, str], cut: int, ops: list[tuple[object, ...]]
) -> None:
    await play(a, first, modes, cut, ops)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    first=st.lists(GROUP, min_size=STEPS, max_size=STEPS),
    modes=st.tuples(MODE, MODE),
    cut=st.integers(0, STEPS - 1),
    ops=st.lists(st.one_of(END, LOAD, COMMIT), max_size=14),
)
async def test_whatever_moves_between_groups_the_body_is_woken_when_it_can_go_on(
    a: Consumer, first: list[str], modes: tuple[str, str], cut: int, ops: list[tuple[object, ...]]
) -> None:
    await play(a, first, modes, cut, ops)
