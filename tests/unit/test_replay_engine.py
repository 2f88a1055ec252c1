"""Does the log drive the body, and does the body's end become the right outcome?"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisworld import values
from redisworld.errors import (
    ErrorInfo,
    FatalError,
    InvalidArguments,
    InvalidInput,
    InvalidValue,
    RemoteError,
    ReplayDivergence,
)
from redisworld.events import Event, EventKind
from redisworld.metadata import get_workflow_metadata
from redisworld.replay import Cancelled, CancelWait, CreateStep, CreateWait, Failed, Instance, now, sleep
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import START, Driver

wf = Workflows()


@wf.step(queue="gpu")
async def work(x: Any) -> str:
    return str(x)


@wf.step
async def refund(x: int) -> str:
    return str(x)


def drive(body: Any, *args: Any, **options: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, *args, **options)


async def two_steps(x: int) -> list[str]:
    return [await work(x), await work(x + 1)]


def test_a_step_is_asked_for_with_name_input_and_queue() -> None:
    driver = drive(two_steps, 4)

    (step,) = driver.store.passes[0][1].steps
    assert step == CreateStep(step.id, "work", values.encode({"x": 4}), "", "gpu")
    assert step.id.startswith("s1_")
    assert len(step.id) == len("s1_") + 12


def test_results_reach_the_body_in_order() -> None:
    assert drive(two_steps, 4).run() == ["work:4", "work:5"]


def test_the_example_of_the_design_runs() -> None:
    async def publish(image: str) -> list[str]:
        thumbs = await asyncio.gather(*(work(f"{image}{w}") for w in (64, 256, 1024)))
        await sleep("1h")
        return thumbs

    driver = drive(publish, "cat")
    for id in driver.named("work"):
        driver.finish(id)
    ((wait, due),) = driver.store.waits.items()
    last = driver.store.log[driver.instance.consumed - 1].at
    assert due == last + 3_600_000
    assert driver.instance.open_waits() == {wait: due}

    assert driver.run() == ["work:cat64", "work:cat256", "work:cat1024"]


def test_commands_are_listed_until_they_are_committed() -> None:
    instance = Instance(run_id="r", workflow=Workflow(two_steps), input=values.encode({"x": 1}), at=START)
    instance.start()

    assert instance.commands() == instance.commands()
    assert len(instance.commands().steps) == 1
    instance.committed()
    assert instance.commands().steps == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("no"), ValueError), (FatalError("no"), FatalError), (KeyboardInterrupt("no"), RemoteError)],
)
def test_a_failed_step_raises_in_the_body_with_its_record(error: BaseException, kind: type[Exception]) -> None:
    async def body() -> str:
        try:
            return await work(1)
        except Exception as caught:
            return f"{type(caught).__name__} {caught.info.message}"  # type: ignore[attr-defined]

    assert drive(body, script=lambda name, x: error).run() == f"{kind.__name__} no"


def test_an_uncaught_exception_fails_the_run_with_its_traceback() -> None:
    async def body() -> None:
        raise LookupError("nothing here")

    error = drive(body).run()

    assert isinstance(error, ErrorInfo)
    assert (error.type, error.message, error.code) == ("LookupError", "nothing here", "USER_ERROR")
    assert "in body" in (error.traceback or "")


@pytest.mark.parametrize("stop", [SystemExit(3), GeneratorExit(), StopIteration(1)])
def test_exceptions_that_would_end_more_than_the_body_only_fail_the_run(stop: BaseException) -> None:
    async def body() -> None:
        await work(1)
        raise stop

    assert isinstance(drive(body).run(), ErrorInfo)


def test_a_result_that_cannot_be_stored_fails_the_run() -> None:
    async def body() -> Any:
        return lambda: 1

    error = drive(body).run()

    assert error.type.endswith("InvalidValue")
    assert error.code == "USER_ERROR"


def test_input_that_does_not_fit_fails_the_run() -> None:
    instance = Instance(run_id="r", workflow=Workflow(two_steps), input=values.encode({"y": 1}), at=START)
    instance.start()

    outcome = instance.commands().outcome
    assert isinstance(outcome, Failed)
    assert "no parameter 'y'" in outcome.error.message


def test_bad_arguments_raise_at_the_call_and_can_be_caught() -> None:
    async def body() -> list[str]:
        caught = []
        for call in (lambda: work(lambda: 1), lambda: work(1, 2)):  # type: ignore[call-arg]
            try:
                await asyncio.gather(work("healthy"), call())
            except (InvalidValue, InvalidArguments) as error:
                caught.append(type(error).__name__)
        return [*caught, await work("after")]

    assert drive(body).run() == ["InvalidValue", "InvalidArguments", "work:after"]


def test_a_recorded_result_that_does_not_fit_the_code_raises_in_the_body() -> None:
    @dataclasses.dataclass
    class Thing:
        x: int

    async def make() -> Any: ...

    make.__annotations__["return"] = Thing
    step = Workflows().step(make)

    async def body() -> str:
        try:
            await step()
        except InvalidValue as error:
            return str(error)
        return "fits"

    assert "step make: the result" in drive(body, script=lambda name: "no thing").run()


def test_body_time_is_that_of_the_last_observed_event() -> None:
    seen: list[datetime | None] = []

    async def body() -> None:
        seen.append(now())
        await work(1)
        seen.append(now())
        seen.append(datetime.fromtimestamp(asyncio.get_running_loop().time(), UTC))
        seen.append(get_workflow_metadata().started_at)

    driver = drive(body, run_id="r7")
    driver.run()

    started = datetime.fromtimestamp(START / 1_000, UTC)
    completed = datetime.fromtimestamp(driver.store.log[-1].at / 1_000, UTC)
    assert seen == [started, completed, completed, started]


@pytest.mark.parametrize(
    ("until", "ms"),
    [("1h 30m", 5_400_000), (0.25, 250), (timedelta(days=2), 172_800_000), (datetime(2026, 1, 1, tzinfo=UTC), None)],
)
def test_sleep_takes_every_form_of_duration(until: Any, ms: int | None) -> None:
    async def body() -> None:
        await sleep(until)

    driver = drive(body)

    due = START + ms if ms is not None else int(until.timestamp() * 1_000)
    assert list(driver.store.waits.values()) == [due]
    driver.run()
    assert driver.instance.now_ms >= due


def test_a_sleep_that_is_no_duration_fails_naming_the_call() -> None:
    async def body() -> str:
        try:
            await sleep("soon")
        except InvalidInput as error:
            return str(error)
        return "slept"

    assert drive(body).run().startswith("sleep(): cannot read duration 'soon'")


@pytest.mark.parametrize("until", [0, "0s", datetime(2020, 1, 1, tzinfo=UTC)])
def test_sleep_until_what_has_passed_asks_for_nothing(until: Any) -> None:
    async def body() -> str:
        await sleep(until)
        return "awake"

    driver = drive(body)

    assert driver.store.log == []
    assert driver.run() == "awake"


def test_asyncio_sleep_and_timeout_are_durable_waits() -> None:
    async def body() -> str:
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(2):
                await work(1)
        except TimeoutError:
            return "late"
        return "in time"

    driver = drive(body)
    (wait,) = driver.store.passes[0][1].waits
    assert wait == CreateWait(wait.id, START + 100)
    driver.finish(wait.id)
    driver.finish(next(iter(driver.store.waits)))

    assert driver.run() == "late"


def test_a_dropped_wait_is_cancelled_in_the_log_only_if_the_log_holds_it() -> None:
    async def body() -> None:
        async with asyncio.timeout(50):
            await work(1)
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        await work(2)

    driver = drive(body)
    (wait,) = driver.store.waits
    driver.finish(driver.named("work")[0])

    asked = driver.store.passes[-1][1]
    assert asked.cancelled_waits == [CancelWait(wait)]
    assert asked.waits == []


def test_a_wait_that_fires_after_it_was_dropped_is_parked() -> None:
    async def body() -> str:
        async with asyncio.timeout(50):
            await work(1)
        return await work(2)

    driver = drive(body)
    (wait,) = driver.store.waits
    driver.end(driver.named("work")[0])
    driver.store.fire(wait)
    asked = driver.step_once()

    assert asked.cancelled_waits == []
    assert driver.run() == "work:2"


def test_a_cancel_request_lets_the_body_clean_up_with_steps() -> None:
    async def body() -> None:
        try:
            await work(1)
        finally:
            await refund(1)

    driver = drive(body)
    driver.store.cancel()
    driver.step_once()
    assert driver.named("refund")
    driver.store.cancel()
    driver.step_once()
    assert driver.instance.outcome is None, "a repeated request must not cancel the clean-up"

    assert driver.run() is None
    assert driver.instance.outcome == Cancelled()
    driver.check_every_prefix()


def test_a_body_may_answer_a_cancel_request_with_a_result() -> None:
    async def body() -> str:
        try:
            return await work(1)
        except asyncio.CancelledError:
            return "saved"

    driver = drive(body)
    driver.store.cancel()
    driver.step_once()

    assert driver.run() == "saved"


def test_cancelled_error_without_a_request_is_a_failure() -> None:
    async def body() -> None:
        raise asyncio.CancelledError

    assert drive(body).run().type == "asyncio.exceptions.CancelledError"


def test_the_result_of_an_abandoned_step_is_recorded_and_ignored() -> None:
    async def body() -> str:
        task = asyncio.create_task(work(1))
        await sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await work(2)

    driver = drive(body)
    abandoned = driver.named("work")[0]
    driver.finish(next(iter(driver.store.waits)))
    before = driver.instance.now_ms
    driver.end(abandoned)
    driver.step_once()

    assert driver.instance.now_ms == before
    assert abandoned not in driver.instance.open_steps()
    assert driver.run() == "work:2"


def test_steps_started_and_never_awaited_are_still_asked_for_at_the_end() -> None:
    async def body() -> str:
        asyncio.create_task(work(1))  # noqa: RUF006  # forgotten on purpose
        asyncio.create_task(sleep(5))  # noqa: RUF006
        return "done"

    asked = drive(body).store.passes[0][1]

    assert [(step.name, step.group) for step in asked.steps] == [("work", "-")]
    assert asked.waits == []
    assert asked.outcome is not None


def test_open_waits_are_cancelled_when_the_body_ends() -> None:
    async def body() -> None:
        asyncio.create_task(sleep(5))  # noqa: RUF006  # forgotten on purpose
        await work(1)

    driver = drive(body)
    (wait,) = driver.store.waits
    driver.run()

    assert driver.store.passes[-1][1].cancelled_waits == [CancelWait(wait)]


def test_a_step_call_that_is_never_awaited_warns_at_its_line_and_asks_for_nothing() -> None:
    async def body() -> str:
        refund(1)
        return await refund(2)

    with pytest.warns(
        RuntimeWarning, match=r"<step call refund s1_\w+> was never awaited: its step is not run"
    ) as found:
        driver = Driver(Workflow(body))

    assert [(warning.filename, warning.lineno) for warning in found] == [(__file__, body.__code__.co_firstlineno + 1)]
    assert len(driver.store.open) == 1


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_step_calls_that_a_dropped_body_had_not_come_to_await_are_no_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        for call in [refund(1), refund(2), refund(3)]:
            await call

    gc.collect()  # what other tests have left
    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    driver = Driver(Workflow(body))

    driver.instance.close()
    del driver
    gc.collect()

    assert unraisable == []


def test_a_step_call_cannot_be_awaited_twice() -> None:
    async def body() -> str:
        call = work(1)
        await call
        try:
            await call
        except RuntimeError as error:
            return str(error)
        return "twice"

    assert "already awaited" in drive(body).run()


# --- divergence ---------------------------------------------------------------------------------------------------


def event(kind: EventKind, id: str, detail: str = "", payload: bytes = b"") -> Event:
    return Event(kind, id, 0, START + 1, detail, payload)


def started(body: Any) -> tuple[Instance, str]:
    instance = Instance(run_id="r", workflow=Workflow(body), input=values.encode({}), at=START)
    instance.start()
    asked = instance.commands()
    return instance, (asked.steps or asked.waits)[0].id


async def refunds() -> None:
    await refund(1)


async def waits() -> None:
    await sleep(1)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (
            refunds,
            EventKind.STEP_CREATED,
            r"the log has step_created s1_\w+ 'charge', the code asked for step 'refund'",
        ),
        (refunds, EventKind.WAIT_CREATED, r"the log has wait_created .*, the code asked for step 'refund'"),
        (waits, EventKind.STEP_CREATED, r"the log has step_created .*, the code asked for a wait until \d+"),
        (waits, EventKind.STEP_COMPLETED, r"step_completed .*a wait"),
        (waits, EventKind.WAIT_CANCELLED, r"wait_cancelled .*a wait"),
        (waits, EventKind.HOOK_CREATED, r"hook_created .*a wait"),
    ],
)
def test_a_log_of_other_code_is_divergence_naming_both_sides(body: Any, kind: EventKind, says: str) -> None:
    instance, id = started(body)

    with pytest.raises(ReplayDivergence, match=says):
        instance.deliver(event(kind, id, "charge"))


def test_a_divergence_in_numbers_that_python_does_not_write_is_still_one() -> None:
    async def body() -> None:
        await work(10**5000)

    instance, id = started(body)
    logged = Event(EventKind.STEP_CREATED, id, 0, START, "work", values.encode({"args": [10**6000]}))

    with pytest.raises(ReplayDivergence, match=r"arguments <dict that cannot be shown.* asked for it with <dict"):
        instance.deliver(logged)


@pytest.mark.parametrize(
    "kind", [EventKind.STEP_CREATED, EventKind.STEP_COMPLETED, EventKind.STEP_FAILED, EventKind.WAIT_COMPLETED]
)
def test_an_event_for_what_was_never_asked_is_divergence(kind: EventKind) -> None:
    instance, _ = started(refunds)

    with pytest.raises(ReplayDivergence, match="the code asked for nothing there"):
        instance.deliver(event(kind, "s9_abc", "charge"))


def test_an_id_of_the_same_number_in_another_run_is_divergence_naming_what_the_code_asked() -> None:
    instance, _ = started(refunds)

    with pytest.raises(ReplayDivergence, match="s1_otherrun 'refund', the code asked for step 'refund'"):
        instance.deliver(event(EventKind.STEP_CREATED, "s1_otherrun", "refund"))


def test_events_the_body_does_not_observe_are_counted_and_passed_over() -> None:
    instance, id = started(refunds)

    for kind in (EventKind.RUN_CREATED, EventKind.RUN_STARTED, EventKind.STEP_STARTED, EventKind.STEP_RETRYING):
        instance.deliver(event(kind, id))
    instance.deliver(event(EventKind.ATTR_SET, "a1"))

    assert instance.consumed == 5
    assert instance.now_ms == START
    assert instance.open_steps() == {id: "refund"}
