"""Which messages could not be processed, and how do they go: sent again, or away? (design section 11, poison)"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld import messages
from redisworld.errors import InvalidInput, LetterNotFound, MalformedMessage, RunGone, RunNotFound
from redisworld.keys import Partition, is_entry_id
from redisworld.messages import StepMessage
from redisworld.settings import SPEC_VERSION
from redisworld.world.deliveries import number_in
from redisworld.world.dispatch import context_of
from redisworld.world.queue import fields_of
from redisworld.world.replies import detail_of, entry_number, text_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World

REASONS = {
    "undecodable": "its bytes are no message",
    "unknown_name": "no worker knew the name of its step or workflow for the time limit",
    "newer_spec": "no worker new enough for it came for the time limit",
    "not_found": "its run does not exist",
    "missing": "its run has no such step, and it carries no input to create one",
    "max_deliveries": "it was delivered too often without being processed",
    "deployment_mismatch": "it kept coming to workers of another deployment",
    "broken": "what Redis holds of its run cannot be worked with",
}
"""Why a message is a dead letter. Whoever buries one says it with one of these words."""

_ORIGINAL = "original:"
_NAME = re.compile(r"([0-9]{1,3})/([0-9]+-[0-9]+)")
_PAGE = 100


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter. ``original`` holds the fields of the entry as they were, ``msg`` among them.

    ``stream`` (within the partition) and ``entry`` say where it was. Times are epoch ms by Redis.
    """

    partition: Partition
    id: str
    kind: str
    reason: str
    detail: str
    deliveries: int
    stream: str
    entry: str
    at: int
    original: dict[str, bytes]
    rest: bytes = b""
    """Fields of an entry that had thousands of them, as netstrings of names and values in turn."""

    @property
    def name(self) -> str:
        """What commands take: the number of the partition and the id of the letter."""
        return f"{self.partition.number}/{self.id}"

    def text(self, field: str) -> str:
        """A clear field of the original as text, or ``""``."""
        return text_of(self.original.get(field, b""))

    @property
    def run_id(self) -> str:
        """The run that the clear fields name, else the message, or ``""``."""
        if run := self.text("run"):
            return run
        try:
            return str(messages.renewed(self.body)["run_id"])
        except MalformedMessage:
            return ""

    @property
    def body(self) -> bytes:
        """The bytes of the message."""
        return self.original.get("msg", b"")

    @property
    def message(self) -> messages.Message | dict[str, object] | None:
        """The message; its fields where it is of a newer version; None where its bytes are no message."""
        try:
            return messages.decode(self.body) if not self._newer else messages.renewed(self.body)
        except MalformedMessage:
            return None

    @property
    def _newer(self) -> bool:
        newer = number_in(self.original.get("spec", b"")) > SPEC_VERSION
        return newer or self.text("kind") not in ("step", "workflow", "")


class DeadLetters:
    """The dead letters of a namespace."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def count(self) -> int:
        """How many there are."""
        keys = [partition.dead for partition in self._world.partitions]
        return sum(await self._world.connection.pipe("count_letters", lambda pipe: [pipe.xlen(key) for key in keys]))

    async def letters(
        self, *, reason: str = "", run_id: str = "", kind: str = "", after: str = ""
    ) -> AsyncGenerator[Letter, None]:
        """The letters there are now that fit, of one partition after another, oldest first; read in pages.

        ``after`` goes on behind the letter of this name. Letters that come while it reads are not among them.
        Raises InvalidInput.
        """
        start, entry = self._place(after) if after else (self._world.partitions[0], "")
        for partition in self._world.partitions[start.number :]:
            last = await self._last(partition)
            at = entry if partition == start else ""
            while last and (page := await self._page(partition, at, last)):
                for letter in page:
                    fits = (not reason or letter.reason == reason) and (not kind or letter.kind == kind)
                    if fits and (not run_id or letter.run_id == run_id):
                        yield letter
                at = page[-1].id

    async def show(self, name: str) -> Letter:
        """The letter of this name. Raises LetterNotFound, InvalidInput for a name that cannot be one."""
        partition, entry = self._place(name)
        connection = self._world.connection
        found = await connection.run("read_letter", lambda: connection.commands.xrange(partition.dead, entry, entry))
        if not found:
            raise LetterNotFound(name)
        return _letter(partition, *found[0])

    async def redrive(self, name: str) -> str:
        """Send the message again as new and delete the letter, in one script; the stream entry it now has.

        It keeps its id and its ``run_context``, and gets one where it had none. Raises LetterNotFound (a second
        redrive, too), RunGone for a finished run, RunNotFound, MalformedMessage where the bytes are no message,
        InvalidInput.
        """
        letter = await self.show(name)
        fields = await self._again(letter)
        target = letter.stream
        if not target.startswith(("steps", "workflows")):
            raise MalformedMessage(f"dead letter {name!r} was not in a stream: nobody knows where its message belongs")
        run_id = str(fields["run_id"])
        reply = await self._world.call(
            "redrive_letter",
            letter.partition,
            self._world.clock(),
            letter.id,
            run_id,
            str(fields["kind"]),
            str(fields.get("step_id", "")) if fields["kind"] == "step" else "",
            str(letter.text("name") or fields.get("step_name") or fields.get("workflow_name") or ""),
            letter.text("spec") or SPEC_VERSION,
            str(fields.get("reason", "")) if fields["kind"] == "workflow" else "",
            number_in(letter.original.get("at", b"")) or self._world.now_ms(),
            target,
            messages.packed(fields),
        )
        word = word_of(reply)
        if word == "no_letter":
            raise LetterNotFound(name)
        if word == "not_found":
            raise RunNotFound(run_id)
        if word == "gone":
            told = f"run {run_id!r} is {detail_of(reply)}: nothing starts on a finished run, start another one"
            raise RunGone(told, run_id=run_id)
        return detail_of(reply)

    async def drop(self, name: str) -> None:
        """Delete a letter for good. A run that was parked by it is left to recovery. Raises LetterNotFound."""
        letter = await self.show(name)
        run_id = letter.run_id if messages.is_word(letter.run_id) else ""
        if word_of(await self._world.call("drop_letter", letter.partition, letter.id, run_id)) == "no_letter":
            raise LetterNotFound(name)

    async def _again(self, letter: Letter) -> dict[str, object]:
        """The fields of its message as new, with the run's context."""
        message = letter.message
        if message is None:
            raise MalformedMessage(
                f"the bytes of dead letter {letter.name!r} are no message, so it cannot be sent again "
                f"({letter.detail or letter.reason}); look at them with 'redisworld dead show --raw', then drop it"
            )
        fields = messages.renewed(letter.body)
        if self._world.partition(str(fields["run_id"])) != letter.partition:
            raise MalformedMessage(f"run {fields['run_id']!r} of dead letter {letter.name!r} belongs elsewhere")
        if isinstance(message, StepMessage) and message.run_context is None:
            fields["run_context"] = msgspec.to_builtins(
                context_of(message.run_id, await self._world.row(message.run_id))
            )
        return fields

    def _place(self, name: str) -> tuple[Partition, str]:
        found = _NAME.fullmatch(name) if isinstance(name, str) else None
        if found is None or int(found[1]) >= len(self._world.partitions) or not is_entry_id(found[2]):
            raise InvalidInput(
                f"{name!r} is no dead letter: its name is a partition from 0 to {len(self._world.partitions) - 1} and "
                "an entry id, like 2/1796167499566-0, as 'redisworld dead list' shows it"
            )
        return self._world.partitions[int(found[1])], found[2]

    async def _last(self, partition: Partition) -> str:
        connection = self._world.connection
        found = await connection.run("read_letters", lambda: connection.commands.xrevrange(partition.dead, count=1))
        return found[0][0].decode() if found else ""

    async def _page(self, partition: Partition, after: str, last: str) -> list[Letter]:
        if after and entry_number(after) >= entry_number(last):
            return []
        connection, start = self._world.connection, f"({after}" if after else "-"
        found = await connection.run(
            "read_letters", lambda: connection.commands.xrange(partition.dead, start, last, count=_PAGE)
        )
        return [_letter(partition, *item) for item in found]


def _letter(partition: Partition, entry: bytes, pairs: Any) -> Letter:
    """Whatever somebody has put into the stream: what is missing is empty."""
    fields = fields_of(pairs)

    def text(name: str) -> str:
        return text_of(fields.get(name, b""))

    return Letter(
        partition=partition,
        id=entry.decode(),
        kind=text("kind"),
        reason=text("reason"),
        detail=text("detail"),
        deliveries=number_in(fields.get("deliveries", b"")),
        stream=text("stream"),
        entry=text("entry"),
        at=number_in(fields.get("at", b"")),
        rest=fields.get("rest", b""),
        original={name.removeprefix(_ORIGINAL): data for name, data in fields.items() if name.startswith(_ORIGINAL)},
    )
