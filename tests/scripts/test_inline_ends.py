"""When may the end of an inline step be written with the pass that it led to? (design section 10, one call per step)"""

from __future__ import annotations

import msgspec
import pytest

from tests.scripts.driver import NOW, RUN, Consumer, Turn, did, end, inline, step

pytestmark = pytest.mark.anyio


async def _started(a: Consumer) -> Turn:
    """A turn whose pass has been committed, and started s1 inline as t1: four events."""
    turn = await a.begin()
    assert (await a.commit(turn, inline("s1", "t1"))).inline
    return msgspec.structs.replace(turn, loaded=msgspec.structs.replace(turn.loaded, replayed_to=2))


async def test_it_completes_a_step_and_starts_the_next_under_the_same_message(a: Consumer) -> None:
    turn = await _started(a)

    answer = await a.commit(turn, did("s1", "t1", length=4), inline("s2", "t2"), consumed=5)

    assert (answer.outcome, answer.inline) == ("committed", True)
    assert (await a.kinds())[4:] == ["step_completed", "step_created", "step_started"]
    assert ((await a.step("s1")).status, (await a.step("s2")).token) == ("completed", "t2")
    assert await a.redis.hget(a.key(), "own:start") == b"s2"
    assert (await a.row()).wake == ""
    assert await a.holds(turn.delivery)


async def test_it_is_stamped_with_the_time_that_the_body_has_seen(a: Consumer) -> None:
    turn = await _started(a)

    await a.commit(turn, did("s1", "t1", length=4, at=NOW + 7), step("s2"), consumed=5)

    assert [event.at for event in (await a.log())[4:]] == [NOW + 7, NOW + 7]


async def test_it_settles_the_message_of_a_run_that_ends(a: Consumer) -> None:
    turn = await _started(a)

    answer = await a.commit(turn, did("s1", "t1", length=4), end(), consumed=5)

    assert answer.outcome == "ended"
    assert (await a.kinds())[4:] == ["step_completed", "run_completed"]
    assert not await a.holds(turn.delivery)


async def test_nothing_is_written_after_an_event_that_the_body_has_not_seen(a: Consumer) -> None:
    turn = await _started(a)
    await a.world.cancel(RUN)
    before = await a.dump()

    assert (await a.commit(turn, did("s1", "t1", length=4), inline("s2", "t2"), consumed=5)).outcome == "lost"
    assert await a.dump() == before


@pytest.mark.parametrize("token", ["t0", "t2"])
async def test_nothing_is_written_under_another_token(a: Consumer, token: str) -> None:
    turn = await _started(a)
    before = await a.dump()

    assert (await a.commit(turn, did("s1", token, length=4), end(), consumed=5)).outcome == "lost"
    assert await a.dump() == before


async def test_nothing_is_written_when_another_worker_has_started_the_step_again(a: Consumer, b: Consumer) -> None:
    turn = await _started(a)
    again = await b.take(turn.delivery)
    item = b.claim_item(again, run_id=RUN, step_id="s1", message_id="start", owned=True)
    assert (await b.world.deliveries.claim(item)).outcome == "started"

    assert (await a.commit(turn, did("s1", "t1", length=4), end(), consumed=5)).outcome == "lost"
    assert (await a.step("s1")).token == item.token


async def test_the_end_of_a_step_is_written_once_when_the_first_chunk_is_sent_again(a: Consumer) -> None:
    turn = await _started(a)
    first = (did("s1", "t1", length=4), step("s2", "g1"))

    for _ in range(2):
        assert (await a.commit(turn, *first, consumed=5, last=False, token="p")).outcome == "chunk"
    last = await a.commit(turn, step("s3", "g1"), ["seal", "g1", "all"], consumed=5, chunk=2, token="p")

    assert last.outcome == "committed"
    assert (await a.kinds()).count("step_completed") == 1
    assert (await a.row()).wake == ""


async def test_a_run_goes_on_when_its_worker_dies_between_the_chunks(a: Consumer, b: Consumer) -> None:
    """The completion has made the message responsible."""
    turn = await _started(a)
    await a.commit(turn, did("s1", "t1", length=4), step("s2", "g1"), consumed=5, last=False)

    loaded = (await b.load(await b.take(turn.delivery))).loaded

    assert (loaded.outcome, loaded.owned, loaded.length) == ("loaded", "", 6)


async def test_nothing_is_written_when_the_step_has_used_up_its_attempts_meanwhile(a: Consumer, b: Consumer) -> None:
    """The same token stands in the state of a step that another worker has given up."""
    turn = await _started(a)
    again = await b.take(turn.delivery)
    item = b.claim_item(again, run_id=RUN, step_id="s1", message_id="start", owned=True, attempts_allowed=1)
    assert (await b.world.deliveries.claim(item)).outcome == "exhausted"

    assert (await a.commit(turn, did("s1", "t1", length=4), end(), consumed=5)).outcome == "lost"
    assert (await a.row()).status == "running"
