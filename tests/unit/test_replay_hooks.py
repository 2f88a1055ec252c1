"""Does a hook in a body give payloads in the order they came, once each, and the same in every replay?"""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from redisworld import Hook, hook, sleep
from redisworld.errors import HookConflict, HookDisposed, InvalidInput, InvalidValue, ReplayDivergence
from redisworld.events import Event, EventKind
from redisworld.replay import Instance
from redisworld.replay.commands import Completed
from redisworld.values import decode
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import Driver

wf = Workflows()


@wf.step
async def work(x: Any) -> str:
    return str(x)


@dataclasses.dataclass
class Approval:
    by: str
    ok: bool


def drive(body: Any, *args: Any, **options: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, *args, **options)


def result(driver: Driver) -> Any:
    driver.check_every_prefix()
    return driver.run()


def test_a_payload_comes_back_as_its_type() -> None:
    async def body() -> list[Any]:
        approval = await hook(Approval, token="order:1")
        return [type(approval).__name__, approval.by, approval.ok]

    driver = drive(body)
    driver.resume("order:1", Approval("kim", True))

    assert result(driver) == ["Approval", "kim", True]


def test_payloads_that_come_before_somebody_awaits_are_kept_in_order() -> None:
    async def body() -> list[int]:
        numbers = hook(int, token="t")
        await work(1)
        return [await numbers, await numbers]

    driver = drive(body)
    for number in (1, 2, 3):
        driver.resume("t", number)
    driver.finish(driver.named("work")[0])

    assert result(driver) == [1, 2]


def test_an_iteration_ends_when_the_hook_is_disposed_of() -> None:
    async def body() -> list[str]:
        seen = []
        async with hook(str, token="t") as messages:
            async for message in messages:
                seen.append(message)
                if message == "stop":
                    messages.dispose()
        return seen

    driver = drive(body)
    for message in ("a", "b", "stop"):
        driver.resume("t", message)

    assert result(driver) == ["a", "b", "stop"]


def test_the_end_of_an_async_with_frees_the_token_for_the_next_hook() -> None:
    async def body() -> list[str]:
        seen = []
        for _ in range(3):
            async with hook(str, token="t") as one:
                seen.append(await one)
        return seen

    driver = drive(body)
    for message in "abc":
        driver.resume("t", message)

    assert result(driver) == ["a", "b", "c"]
    kinds = [event.kind for event in driver.store.log if event.kind.startswith("hook")]
    assert kinds[:4] == ["hook_created", "hook_received", "hook_created", "hook_disposed"]


def test_a_token_held_elsewhere_raises_at_the_await_and_names_the_run() -> None:
    async def body() -> str:
        try:
            await hook(str, token="taken")
        except HookConflict as conflict:
            return f"{conflict.run_id} {conflict}"
        return "no conflict"

    driver = drive(body, taken={"taken": "r2"})
    assert result(driver) == "r2 the hook token 'taken' is held by run 'r2'"


@pytest.mark.parametrize(("taken", "answer"), [({"t": "r2"}, "r2"), ({}, None)])
def test_get_conflict_says_whose_the_token_is(taken: dict[str, str], answer: str | None) -> None:
    async def body() -> str | None:
        mine = hook(str, token="t")
        return await mine.get_conflict() or await mine.get_conflict()

    assert result(drive(body, taken=taken)) == answer


def test_awaiting_a_hook_that_is_disposed_of_raises() -> None:
    async def body() -> str:
        mine = hook(str, token="t")
        mine.dispose()
        mine.dispose()
        try:
            return await mine
        except HookDisposed as error:
            return str(error)

    assert result(drive(body)) == "the hook with token 't' was disposed of"


def test_a_disposal_ends_those_who_wait() -> None:
    async def body() -> list[str]:
        mine = hook(str, token="t")

        async def wait() -> str:
            try:
                return await mine
            except HookDisposed:
                return "disposed"

        waiting = [asyncio.create_task(wait()) for _ in range(2)]
        await work(1)
        mine.dispose()
        return await asyncio.gather(*waiting)

    driver = drive(body)
    assert result(driver) == ["disposed", "disposed"]


def test_each_payload_goes_to_one_of_those_who_wait_and_none_is_lost_to_a_cancelled_one() -> None:
    async def body() -> list[str]:
        mine = hook(str, token="t")
        loser = asyncio.create_task(_one(mine))
        winner = asyncio.create_task(_one(mine))
        await work(1)
        loser.cancel()
        return [await winner]

    driver = drive(body)
    driver.store.append(EventKind.HOOK_RECEIVED, next(iter(driver.store.hooks)), "k", b"\xa1a")
    driver.finish(driver.named("work")[0])
    driver.resume("t", "b")

    assert result(driver) == ["b"]


async def _one(mine: Hook[str]) -> str:
    return await mine


def test_a_race_of_a_hook_and_a_timer_ends_with_the_first() -> None:
    async def body() -> str:
        try:
            async with asyncio.timeout(60):
                return await hook(str, token="t")
        except TimeoutError:
            return "nobody came"

    driver = drive(body)
    driver.resume("t", "here")
    assert result(driver) == "here"
    assert result(drive(body)) == "nobody came"


def test_a_hook_waits_for_months_beside_a_timer() -> None:
    async def body() -> str:
        mine = hook(str, token="t")
        await sleep(timedelta(days=90))
        return await mine

    driver = drive(body)
    driver.finish(next(iter(driver.store.waits)))
    driver.resume("t", "late")
    assert result(driver) == "late"


def test_a_payload_that_does_not_fit_is_the_bodys_to_catch() -> None:
    async def body() -> list[Any]:
        mine = hook(int, token="t")
        try:
            return [await mine]
        except InvalidValue as error:
            return [str(error), await mine]

    driver = drive(body)
    driver.resume("t", "text")
    driver.resume("t", 3)
    assert result(driver) == [
        "the payload of hook 't': does not fit int: Expected `int`, got `str`",
        3,
    ]


def test_a_hook_without_a_token_gets_one_that_repeats_in_every_replay_and_in_no_other_run() -> None:
    async def body() -> str:
        mine = hook(str)
        return await mine

    tokens = [next(iter(drive(body, run_id=run).store.hooks.values())) for run in ("r1", "r1", "r2")]
    assert tokens[0] == tokens[1] != tokens[2]
    assert all(len(token) == 24 and token.isalnum() for token in tokens)


def test_a_bad_token_is_refused_where_it_is_given() -> None:
    async def body() -> str:
        try:
            hook(str, token="two words")
        except InvalidInput as error:
            return str(error)
        return ""

    assert "'two words'" in result(drive(body))


def test_a_hook_outside_a_body_is_refused() -> None:
    with pytest.raises(InvalidInput, match="belongs in a workflow body"):
        hook(str)


def test_a_hook_with_another_token_than_the_log_has_is_a_divergence() -> None:
    async def body() -> str:
        return await hook(str, token="t")

    driver = drive(body)
    instance = driver.new_instance()
    instance.start()
    created = driver.store.log[0]
    with pytest.raises(ReplayDivergence, match=r"hook_created .* 'other', the code asked for a hook with token 't'"):
        instance.deliver(Event(EventKind.HOOK_CREATED, created.id, 0, created.at, "other", b""))


def test_a_disposal_in_the_log_that_the_code_does_not_make_is_a_divergence() -> None:
    async def body() -> str:
        return await hook(str, token="t")

    driver = drive(body)
    driver.store.append(EventKind.HOOK_DISPOSED, next(iter(driver.store.hooks)))
    with pytest.raises(ReplayDivergence, match="hook_disposed"):
        driver.step_once()


@pytest.mark.parametrize(("letters", "fits"), [(90, True), (110, False)])
def test_metadata_is_as_big_as_max_payload_allows(letters: int, fits: bool) -> None:
    async def body() -> str:
        try:
            hook(token="t", metadata="m" * letters)
        except InvalidValue as error:
            return str(error)
        return "taken"

    instance = Instance(
        run_id="r", workflow=Workflow(body), input=Workflow(body).signature.encode_call((), {}), at=1, max_payload=100
    )
    instance.start()
    assert isinstance(instance.outcome, Completed)
    told = decode(instance.outcome.result)
    assert told == "taken" if fits else "more than the 100 of max_payload" in told
    instance.close()
