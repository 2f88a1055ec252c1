"""What can doctor find, why does it matter, and what mends it? One line of the table for each kind of finding."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. ``where`` are names of keys, ``mended`` says what was done about it, or ``""``."""

    code: str
    what: str
    where: tuple[str, ...] = ()
    mended: str = ""

    @property
    def why(self) -> str:
        """Why it matters."""
        return KINDS[self.code].why

    @property
    def remedy(self) -> str:
        """What mends it: a command, or what a person has to do."""
        return KINDS[self.code].remedy


class Kind(msgspec.Struct, frozen=True):
    """A kind of finding. ``fixed``: whether ``doctor --fix`` mends it."""

    why: str
    remedy: str
    fixed: bool = False


_FIX = "redisworld doctor --fix"
_WORKERS = "start workers: redisworld worker app:wf"

KINDS: dict[str, Kind] = {
    "redis_version": Kind("scripts need commands of Redis 6.2", "upgrade Redis"),
    "eviction": Kind(
        "when memory is full this policy deletes runs; with noeviction a full Redis refuses new work and loses nothing",
        "redis-cli CONFIG SET maxmemory-policy noeviction",
    ),
    "persistence": Kind(
        "a restart of Redis loses every run",
        "redis-cli CONFIG SET appendonly yes (and in redis.conf); docs/guarantees.md says what each setting means",
    ),
    "clock": Kind(
        "runs take their time from Redis alone; but times in logs and traces of this machine will not match",
        "synchronise the clocks of this machine and of Redis (NTP)",
    ),
    "meta_lost": Kind(
        "it holds the partition count: without it nobody new can connect, and with another count runs are not found",
        f"{_FIX} (where runs do not tell the count: --partitions <count>)",
        fixed=True,
    ),
    "partitions": Kind(
        "these keys lie in partitions that no worker reads: the count was changed in Redis after they were made",
        "put the old partition count back: redis-cli HSET rw:<namespace>:meta partitions <count>",
    ),
    "leases": Kind(
        "those with the shorter one take over what the others still work on, and bodies run twice",
        "give all workers of the namespace one REDISWORLD_LEASE_MS; docs/upgrades.md says how to change it",
    ),
    "foreign_key": Kind(
        "scripts refuse what is not ours, so whatever needs this key stands still; the rest of its partition, if it is "
        "in one, was not looked at",
        "find out who writes it and give it another name: redis-cli RENAME <key> <other>",
    ),
    "group_missing": Kind(
        "nobody can read a stream without its group; a running worker makes it again within a second",
        f"{_FIX}, or {_WORKERS}",
        fixed=True,
    ),
    "no_worker": Kind("messages wait and nobody has read the stream for a while", _WORKERS),
    "stale_delivery": Kind(
        "its worker has not renewed the lease and no other one has taken the message over",
        f"{_WORKERS}; a running one takes them over when their lease ends",
    ),
    "deleted_delivery": Kind(
        "the message was deleted while it was delivered; it cannot be processed, only forgotten", _FIX, fixed=True
    ),
    "settled_by_hand": Kind(
        "acknowledged and not deleted: it is delivered to nobody and keeps its memory", _FIX, fixed=True
    ),
    "overdue": Kind("timers and delayed messages that are due wait for a worker", _WORKERS),
    "timer_missing": Kind("the run sleeps for ever: nothing will tell it that the time is over", _FIX, fixed=True),
    "delayed_without_body": Kind(
        "its message is lost and nothing will happen when it is due; the run is recovered without it", _FIX, fixed=True
    ),
    "body_without_delayed": Kind(
        "nobody knows when the message is due, so it never will be; it is sent now, or dropped if its run has ended",
        _FIX,
        fixed=True,
    ),
    "wake_lost": Kind(
        "the run has something to see and no message will tell a worker so",
        f"{_FIX}; a running worker finds it too, within minutes",
        fixed=True,
    ),
    "step_lost": Kind(
        "the step waits for a message that is nowhere",
        f"{_FIX} --app app:wf (the code names the queue of the step); a running worker that has the step does it too",
        fixed=True,
    ),
    "parked": Kind(
        "the run rests until its dead letter is sent again or dropped", "redisworld dead show LETTER, then dead redrive"
    ),
    "unreadable": Kind(
        "no worker can go on with a run whose row or step cannot be read",
        "look at the key with redis-cli; end the run with: redisworld run terminate ID --yes",
    ),
    "listing": Kind("a listing that is wrong hides runs, or shows some that are gone", _FIX, fixed=True),
    "expires": Kind("Redis will delete an open run", _FIX, fixed=True),
    "hook_pointer": Kind("a resume by the token does not find the hook, so the run waits for ever", _FIX, fixed=True),
    "dangling_pointer": Kind("the token points to a hook that is over: a key that nobody needs", _FIX, fixed=True),
    "not_reaped": Kind("finished runs past their retention keep their memory", f"{_WORKERS}, or {_FIX}", fixed=True),
    "dead_letters": Kind("messages that could not be processed wait for a decision", "redisworld dead list"),
}
"""By code; the order is the one of the page docs/doctor.md."""
