"""An application that traces: each span that ends is a line of JSON in the file ``TRACED_TO``, at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import redis
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from redisworld import Backoff, Workflows, get_step_metadata


class ToFile(SpanExporter):
    """Appends to a file, for whoever reads it after this process was killed."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ["TRACED_TO"], "a") as file:
            file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


if "TRACED_TO" in os.environ:
    provider = TracerProvider(resource=Resource({"process.pid": os.getpid()}))
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)

wf = Workflows()
mine = trace.get_tracer("the application")


async def meet(side: str) -> int:
    """Ends when both sides are there."""
    with mine.start_as_current_span(f"meeting {side}"), redis.Redis.from_url(os.environ["CHAOS_REDIS"]) as client:
        client.sadd("probe:meeting", side)
        while client.scard("probe:meeting") < 2:  # noqa: ASYNC110 the other one is elsewhere
            await asyncio.sleep(0.02)
    return os.getpid()


@wf.step(queue="left")
async def left() -> int:
    return await meet("left")


@wf.step(queue="right")
async def right() -> int:
    return await meet("right")


@wf.step(max_retries=2, backoff=Backoff(first_ms=50))
def second_time() -> None:
    """In a thread."""
    with mine.start_as_current_span("in a thread"):
        if get_step_metadata().attempt == 1:
            raise ValueError("not at the first time")


@wf.step
async def kills_once() -> None:
    """Its worker dies of it, once."""
    if get_step_metadata().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@wf.workflow
async def travels() -> list[int]:
    pids = await asyncio.gather(left(), right())
    await second_time()
    await kills_once()
    return sorted(set(pids))


@wf.workflow
async def stays() -> None:
    await asyncio.gather(second_time(), left(), right())
