"""Which durations, limits and names does a process work with, and why those?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from redisworld.durations import MAX_MS, parse_ms
from redisworld.errors import InvalidInput

DATA_VERSION = 1
"""Version of the layout in Redis (design section 5), kept in the namespace's meta hash."""

SPEC_VERSION = 1
"""Version of messages and events (design section 6), carried by each of them in clear."""

MOST_PARTITIONS = 256
"""Of a namespace. Each has keys and streams of its own, which every worker reads."""

_FORBIDDEN_IN_WORD = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff{}:@|]")
"""What keys and headers are cut at, what a terminal cannot show, and what is no UTF-8."""
_LONGEST_WORD = 256

_MOST = 1_000_000_000
"""Of whatever is counted: more is a slip of the finger, and scripts take whole numbers of 15 digits at most."""
_MOST_BYTES = 256 * 1024 * 1024
"""Redis takes no text of more than 512 MB, and a message is more than the value it carries."""
_ALIKE = 0.92
"""From where on a name was meant for another one: a letter or two. Others may have variables of this prefix, too."""
_SHORTEST_LEASE_MS = 100
"""A lease is renewed three times, by a thread that has to get its turn."""
_SIZES = frozenset({"max_payload", "step_input_limit", "chunk_bytes", "output_chunk_bytes"})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Every one has an environment variable ``REDISWORLD_<NAME>``; durations end in ``_ms``."""

    url: str = "redis://localhost:6379/0"
    username: str = ""
    password: str = ""
    """Where the URL has none. As they are: a secret mounted into the environment need not be quoted for a URL."""

    sentinel_password: str = ""
    """Of the Sentinels themselves, where they ask for one."""

    namespace: str = "default"
    partitions: int | None = None
    """None takes what the namespace was made with, or 4 (1 when embedded) for a new one: four streams let
    four cores of a Redis Cluster share the load and still poll in one blocking read on one Redis."""

    deployment: str = ""
    affinity: bool = False
    """With affinity a run's messages go only to workers of the deployment that started it."""

    deployment_grace_ms: int = 600_000
    """With affinity: how long messages of a deployment may wait that no live worker serves, while others live. Then
    their runs fail with ``DEPLOYMENT_MISMATCH``; 0 lets them wait for ever."""

    concurrency: int = 64
    """Step bodies at once in one worker. Measured best prefetch for no-op steps; lower it for heavy bodies."""

    replay_concurrency: int = 16
    """Runs replayed at once in one worker; a replay is CPU work, the rest is waiting for Redis."""

    max_inline_steps: int = 1
    """Steps of a pass that the replaying worker runs itself: 1, or 0 to send every step through the queue."""

    sticky_runs: int = 1_000
    """Bodies that stay in memory while they wait, so that a wake replays only what is new; 0 keeps none."""

    lease_ms: int = 30_000
    """How long a delivery is held without renewal. Renewed at a third of it."""

    block_ms: int = 5_000
    """Longest blocking read: a quiet worker sends three commands in this time, and learns at its end that Redis is
    silent. A stop ends it at once, or waits no longer where Redis refuses that."""

    reclaim_every_ms: int = 1_000
    timer_poll_ms: int = 10_000
    """Longest sleep between two looks at the timers; an earlier due time announces itself."""

    reap_every_ms: int = 60_000
    """How often finished runs past their retention are looked for."""

    recover_every_ms: int = 10_000
    """How often one page of open runs is looked at for lost messages. What a crash leaves behind its lease brings back;
    this is for what a person deletes, so one command in five seconds is enough."""

    grace_ms: int = 25_000
    """How long a drain waits for running bodies; below the 30 s that Kubernetes gives a pod."""

    max_deliveries: int = 48
    """Deliveries of one message before it is poison and goes to the dead letters."""

    refused_limit_ms: int = 3_600_000
    """How long a message that no worker can process yet is handed back before it becomes a dead letter."""

    retention_ms: int = 7 * 24 * 3_600_000
    """How long a finished run stays; a cancelled one at least a lease, so that the bodies of its steps hear of it."""

    max_payload: int = 4 * 1024 * 1024
    step_input_limit: int = 128 * 1024
    """Inputs up to this size travel in the step message; bigger ones the claim returns from the log."""

    chunk_steps: int = 256
    chunk_bytes: int = 1024 * 1024
    """Bounds of one commit script call: about 2 ms of Redis time."""

    output_length: int = 10_000
    """Chunks that an output stream keeps; the oldest go first, and a reader sees the hole by their numbers."""

    output_chunk_bytes: int = 64 * 1024
    """Largest chunk. With ``output_length`` the bound of a stream: 640 MB, were every chunk of this size."""

    log_page: int = 1_000
    max_log_events: int = 1_000_000
    max_blocked_loop_ms: int = 600_000
    """A body without a timeout that blocks the event loop keeps its lease at most this long."""

    redis_timeout_ms: int = 5_000
    """How long one command may take before the connection counts as dead."""

    retry_redis_ms: int = 20_000
    """How long a repeatable call is repeated through an outage; below the lease, so that the owner still owns."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
        """Settings from ``REDISWORLD_*`` variables; ``overrides`` that are not None win. Raises InvalidInput."""
        if unknown := overrides.keys() - set(cls.__struct_fields__):
            raise InvalidInput(f"there is no setting {', '.join(sorted(unknown))}")
        source = os.environ if environ is None else environ
        _refuse_slips(source)
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(cls):
            if overrides.get(field.name) is not None:
                values[field.name] = overrides[field.name]
            elif text := source.get(variable := f"REDISWORLD_{field.name.upper()}"):
                values[field.name] = _parse(variable, field.name, text, field.type)
        settings = cls(**values)
        settings.check()
        return settings

    def check(self) -> None:
        """Refuse values that cannot work. Raises InvalidInput naming the setting."""
        for field in msgspec.structs.fields(self):
            try:
                msgspec.convert(getattr(self, field.name), field.type)
            except (msgspec.ValidationError, UnicodeEncodeError) as error:
                raise InvalidInput(f"setting {field.name} must be another type: {error}") from error
        positive = ("concurrency", "replay_concurrency", "lease_ms", "block_ms", "max_deliveries", "chunk_steps",
                    "log_page", "reclaim_every_ms", "timer_poll_ms", "reap_every_ms", "recover_every_ms", "max_payload",
                    "chunk_bytes", "max_log_events", "redis_timeout_ms", "output_length",
                    "output_chunk_bytes")  # fmt: skip
        not_negative = ("max_inline_steps", "sticky_runs", "grace_ms", "deployment_grace_ms", "refused_limit_ms",
                        "retention_ms", "step_input_limit", "max_blocked_loop_ms", "retry_redis_ms")  # fmt: skip
        for names, least in ((positive, 1), (not_negative, 0), (("lease_ms",), _SHORTEST_LEASE_MS)):
            for name in names:
                value, most = getattr(self, name), _most(name)
                if value < least:
                    raise InvalidInput(f"setting {name} must be at least {least}, not {value}")
                if value > most:
                    raise InvalidInput(f"setting {name} must be at most {most}, not {value}")
        if self.max_inline_steps > 1:
            raise InvalidInput(f"setting max_inline_steps must be 0 or 1, not {self.max_inline_steps}")
        if self.partitions is not None and not 1 <= self.partitions <= MOST_PARTITIONS:
            raise InvalidInput(f"setting partitions must be between 1 and {MOST_PARTITIONS}, not {self.partitions}")
        for name in ("username", "password", "sentinel_password"):
            if getattr(self, name).endswith(("\n", "\r")):
                raise InvalidInput(f"setting {name} ends with a line break: write it without one (echo -n)")
        check_word(self.namespace, what="setting namespace")
        if self.deployment:
            check_word(self.deployment, what="setting deployment")
        if self.affinity and not self.deployment:
            raise InvalidInput("setting affinity needs a deployment: set REDISWORLD_DEPLOYMENT")


def _refuse_slips(environ: Mapping[str, str]) -> None:
    """Raise InvalidInput for a variable that was meant for a setting, by all appearances, and is none."""
    known = {name.upper() for name in Settings.__struct_fields__}
    for variable in environ:
        _, ours, name = variable.partition("REDISWORLD_")
        if ours and variable == ours + name and name not in known:
            same = [f"{name}_MS"] if f"{name}_MS" in known else []
            for meant in same or get_close_matches(name, known, 1, _ALIKE):
                if ours + meant not in environ:
                    raise InvalidInput(f"environment variable {variable} is no setting: {ours}{meant} is")


def check_word(word: str, *, what: str = "a deployment") -> None:
    """Raises InvalidInput for what cannot be a namespace or a deployment id."""
    if not 0 < len(word) <= _LONGEST_WORD or _FORBIDDEN_IN_WORD.search(word):
        raise InvalidInput(
            f"{what} must be a plain word of 1 to {_LONGEST_WORD} characters without '{{}}:@|' or spaces, "
            f"not {word!r:.{_LONGEST_WORD}}"
        )


def _most(name: str) -> int:
    """What a number can be at most: a length of time, bytes, or a count."""
    if name.endswith("_ms"):
        return MAX_MS
    return _MOST_BYTES if name in _SIZES else _MOST


def _parse(variable: str, name: str, text: str, wanted: Any) -> Any:
    try:
        if name.endswith("_ms") and not text.isdigit():
            return parse_ms(text)
        return msgspec.convert(text, wanted, strict=False)
    except (msgspec.ValidationError, InvalidInput) as error:
        raise InvalidInput(f"environment variable {variable}={text!r}: {error}") from error
