"""Does a command trace? Where the process has a tracer provider: redisworld brings none, and sets none up."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from redisworld.errors import InvalidInput


def traced(asked: bool | None) -> AbstractContextManager[object]:
    """Trace while it is open, if that was asked for, or if nothing was and there is where spans can go.

    Look after the application is loaded: it may have set the provider. Raises InvalidInput where what was asked for
    cannot be had.
    """
    if asked is False:
        return nullcontext()
    try:
        from redisworld import tracing
    except ImportError as error:
        if asked:
            raise InvalidInput("--tracing needs the extra: pip install 'redisworld[otel]'") from error
        return nullcontext()
    if tracing.is_configured():
        return tracing.tracing()
    if asked:
        raise InvalidInput(
            "--tracing: this process has no tracer provider: start it with opentelemetry-instrument, or let the "
            "application call opentelemetry.trace.set_tracer_provider()"
        )
    return nullcontext()
