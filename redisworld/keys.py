"""Which keys are there in Redis, of which type, and when do they go? (design section 5)

All keys of a run and of its partition's streams share the hash tag ``{namespace:p}``, so one script changes a run
and its queues together, on one Redis and on a Cluster alike.

| key                       | type          | expires                                        |
|---------------------------|---------------|------------------------------------------------|
| {ns:p}:steps…             | stream        | never; entries go when acknowledged            |
| {ns:p}:workflows…         | stream        | never; entries go when acknowledged            |
| {ns:p}:delayed, :body     | zset, hash    | never; members go when promoted                |
| {ns:p}:dead               | stream        | never; people redrive or drop                  |
| {ns:p}:run:<id>, :log     | hash, list    | retention after the end; never while open      |
| {ns:p}:run:<id>:resumes   | hash          | with its run                                   |
| {ns:p}:run:<id>:outs      | hash          | with its run: the reaper deletes them, for no  |
| {ns:p}:run:<id>:out:<n>   | stream        | TTL outlives the listing that it knows them by |
| {ns:p}:run:<id>:hooks     | hash          | at the end of the run; holds open hooks only   |
| {ns:p}:hook:<token>       | hash          | retention after its hook; never while it lives |
| {ns:p}:releases           | hash          | never; fields go when the pointer is released  |
| {ns:p}:index:…, :expiring | zset          | never; members go with their run               |
| {ns:p}:stats              | hash          | never; a fixed set of counters                 |
| {ns:p}:nudge              | stream        | never; one entry, wakes the timer loops        |
| {ns:p}:reclaim:<stream>   | string        | some seconds: whose turn it is to sweep        |
| {ns:p}:reclaim:runs       | string        | some seconds: whose turn it is to recover      |
| ns:meta                   | hash          | never                                          |
| {ns}:worker:<consumer>    | string        | 15 s after the worker's last beat              |
| {ns}:workers              | set           | never; members go when their worker has gone   |
| {ns}:streams              | zset          | never; members go a week after the last reader |
"""

from __future__ import annotations

import binascii
import re
from functools import cached_property

import msgspec

from redisworld.errors import InvalidInput

GROUP = "workers"
"""The one consumer group of every stream."""

PREFIX = "rw:"

_LONGEST_TOKEN = 256


def partition_of(name: str, partitions: int) -> int:
    """CRC16 (XMODEM, as Redis Cluster uses) of a run id or hook token, modulo the partition count.

    Raises InvalidInput for a name that is no valid Unicode: a shell hands over any bytes.
    """
    try:
        return binascii.crc_hqx(name.encode(), 0) % partitions
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name!r} is no valid Unicode, and so no id of anything") from error


def check_token(token: str, *, what: str = "hook token") -> str:
    """The token, if it can be one. Raises InvalidInput."""
    if not isinstance(token, str) or not 0 < len(token) <= _LONGEST_TOKEN or not token.isprintable() or " " in token:
        raise InvalidInput(
            f"{what} {token!r} cannot be used: 1 to {_LONGEST_TOKEN} printable characters without spaces"
        )
    return token


_OUTPUT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENTRY_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def check_output_name(name: str) -> str:
    """The name of an output stream, if it can be one. Raises InvalidInput."""
    if not isinstance(name, str) or not _OUTPUT_NAME.fullmatch(name):
        raise InvalidInput(
            f"output stream {name!r}: a name is 1 to 64 letters, digits and . _ -, beginning with a letter or digit"
        )
    return name


def is_entry_id(text: object) -> bool:
    """Whether Redis takes this for the id of an entry of a stream: two numbers of 64 bits."""
    found = _ENTRY_ID.fullmatch(text) if isinstance(text, str) else None
    return found is not None and all(int(number) < 2**64 for number in found.groups())


def check_entry_id(text: str) -> str:
    """The id of a chunk in an output stream. Raises InvalidInput."""
    if not is_entry_id(text):
        raise InvalidInput(f"{text!r} is no id of a chunk; the id of one is like 1764628800123-0")
    return text


class Partition(msgspec.Struct, frozen=True, dict=True, cache_hash=True):
    """The key names of one partition."""

    namespace: str
    number: int

    @cached_property
    def tag(self) -> str:
        """What all keys of the partition begin with."""
        return f"{PREFIX}{{{self.namespace}:{self.number}}}:"

    def steps(self, queue: str = "", deployment: str = "") -> str:
        """Stream of step messages ready to run, of one queue and one pinned deployment."""
        return f"{self.tag}steps{f':{queue}' if queue else ''}{f'@{deployment}' if deployment else ''}"

    def workflows(self, deployment: str = "") -> str:
        """Stream of wakes."""
        return f"{self.tag}workflows{f'@{deployment}' if deployment else ''}"

    @property
    def delayed(self) -> str:
        """Sorted set of what is due later: timers and delayed messages by due time in ms."""
        return f"{self.tag}delayed"

    @property
    def delayed_body(self) -> str:
        """Hash from member of ``delayed`` to its message."""
        return f"{self.tag}delayed:body"

    @property
    def dead(self) -> str:
        """Stream of dead letters."""
        return f"{self.tag}dead"

    def run(self, run_id: str) -> str:
        """Hash: the run row."""
        return f"{self.tag}run:{run_id}"

    def log(self, run_id: str) -> str:
        """List: the run's event log."""
        return f"{self.tag}run:{run_id}:log"

    def resumes(self, run_id: str) -> str:
        """Hash from resume id to the event it made: ``number|digest|token``."""
        return f"{self.tag}run:{run_id}:resumes"

    def hooks(self, run_id: str) -> str:
        """Hash from the id of each hook that holds or claims a token to that token."""
        return f"{self.tag}run:{run_id}:hooks"

    def outs(self, run_id: str) -> str:
        """Hash: the names of the run's output streams, the state of each, and where each of their writers is."""
        return f"{self.tag}run:{run_id}:outs"

    def output(self, run_id: str, name: str) -> str:
        """Stream: an output stream of the run."""
        return f"{self.tag}run:{run_id}:out:{name}"

    def hook(self, token: str) -> str:
        """Hash: which run and hook a token points to. In the partition of the token, not of the run."""
        return f"{self.tag}hook:{token}"

    @property
    def releases(self) -> str:
        """Hash from ``<run> <hook>`` to a token whose pointer may go."""
        return f"{self.tag}releases"

    def index(self, name: str) -> str:
        """Sorted set of run ids by creation time: ``created`` (all runs) or ``status:<status>``."""
        return f"{self.tag}index:{name}"

    @property
    def expiring(self) -> str:
        """Sorted set of finished runs by the time they go."""
        return f"{self.tag}expiring"

    @cached_property
    def stats(self) -> str:
        """Hash of exact counts kept by the scripts."""
        return f"{self.tag}stats"

    @property
    def nudge(self) -> str:
        """Stream of at most one entry, written when something is due earlier than all before."""
        return f"{self.tag}nudge"

    @property
    def ended(self) -> str:
        """Pub/sub channel (no key): ids of runs as they end."""
        return f"{self.tag}ended"

    def reclaim_ticket(self, stream: str) -> str:
        """String: which consumer sweeps the pending list of a stream."""
        return f"{self.tag}reclaim:{stream}"

    def short(self, stream: str) -> str:
        """The name of a stream within its partition, as scripts take it."""
        return stream.removeprefix(self.tag)


def absent(key: str) -> str:
    """A key in the slot of another one, under which nothing is ever written."""
    return f"{key.partition('}')[0]}}}:absent"


def meta(namespace: str) -> str:
    """Hash: partition count and data version of a namespace."""
    return f"{PREFIX}{namespace}:meta"


def worker_key(namespace: str, consumer: str) -> str:
    """String: what a live worker last said of itself, as JSON."""
    return f"{PREFIX}{{{namespace}}}:worker:{consumer}"


def listed_workers(namespace: str) -> str:
    """Set of consumers that may have a worker key. In one slot with those, so that one command reads them all."""
    return f"{PREFIX}{{{namespace}}}:workers"


def listed_streams(namespace: str) -> str:
    """Sorted set of stream names within a partition, by the last time (ms) that a worker has read them."""
    return f"{PREFIX}{{{namespace}}}:streams"
