"""What does ``redisworld doctor`` do? It finds what stands still in a namespace, says why it matters, and mends it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from redisworld.cli.apps import load_app
from redisworld.cli.commands import add_command
from redisworld.cli.options import OneOf, add_redis_options, add_setting, connected, duration_ms, settings_of
from redisworld.cli.plain import as_json, one_line
from redisworld.errors import NamespaceNotFound
from redisworld.world.examination import examine
from redisworld.world.examine_meta import examine_lost_meta
from redisworld.world.findings import KINDS, Finding

_SHOWN = 20
"""Findings of one kind that are shown to people; --json has all."""
_PROGRESS_S = 0.5


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "doctor", _doctor,
        does="Find what stands still or will: lost messages, dead letters, settings of Redis that lose runs.",
        example="redisworld doctor --fix --app app:wf",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_redis_options(parser)
    parser.add_argument("--fix", action="store_true", help="mend what is safe to mend, and say what was done")
    parser.add_argument("--deep", action="store_true", help="scan all keys too, for what no listing names")
    parser.add_argument("--app", metavar="MODULE[:ATTRIBUTE]",
                        help="the Workflows object: --fix sends lost steps to the queues it names")  # fmt: skip
    parser.add_argument("--ignore", metavar="CODE", action="append", default=[], type=OneOf(KINDS),
                        help="a kind of finding that is fine here; may be repeated")  # fmt: skip
    add_setting(parser, "--lease", "lease_ms", "lease of the workers (default: 30s)", type=duration_ms)


def _doctor(arguments: argparse.Namespace) -> int:
    steps = load_app(arguments.app).steps if arguments.app else {}
    queues = {name: step.queue for name, step in steps.items()}
    findings = asyncio.run(_examined(arguments, queues))
    print(as_json(_as_object(findings)) if arguments.json else _as_text(findings))
    return 1 if any(not finding.mended for finding in findings) else 0


async def _examined(arguments: argparse.Namespace, queues: Mapping[str, str]) -> list[Finding]:
    try:
        return await _in_namespace(arguments, queues)
    except NamespaceNotFound:
        lost = await examine_lost_meta(settings_of(arguments), fix=arguments.fix)
        if lost is None or lost.code in arguments.ignore:
            raise
    return [lost, *(await _in_namespace(arguments, queues) if lost.mended else [])]


async def _in_namespace(arguments: argparse.Namespace, queues: Mapping[str, str]) -> list[Finding]:
    async with connected(arguments, create=False) as world:
        found = examine(
            world, fix=arguments.fix, deep=arguments.deep, queue_of=queues.get, progress=_Progress(sys.stderr).told
        )
        return [finding async for finding in found if finding.code not in arguments.ignore]


class _Progress:
    """Lines on stderr while it takes long; a quick look is quiet."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._said = time.monotonic() + _PROGRESS_S

    def told(self, what: str, count: int) -> None:
        """So many of these have been looked at."""
        if time.monotonic() - self._said >= _PROGRESS_S:
            self._said = time.monotonic()
            print(f"redisworld: looking at {what}" + (f": {count}" if count else ""), file=self._out)


def _as_object(findings: Sequence[Finding]) -> dict[str, Any]:
    """``{healthy, findings}``; a finding with its remedy and what was mended."""
    return {
        "healthy": not findings,
        "findings": [
            {
                "code": finding.code,
                "what": finding.what,
                "where": list(finding.where),
                "why": finding.why,
                "remedy": finding.remedy,
                "mended": finding.mended or None,
            }
            for finding in findings
        ],
    }


def _as_text(findings: Sequence[Finding]) -> str:
    """By kind: each finding with its keys, then why it matters and what mends it."""
    if not findings:
        return "healthy: nothing stands still"
    counts, parts = Counter(finding.code for finding in findings), []
    for code in [code for code in KINDS if code in counts]:
        mine = [finding for finding in findings if finding.code == code]
        lines = [f"{code}"]
        for finding in mine[:_SHOWN]:
            lines.append(f"  {one_line(finding.what, 400)}")
            lines += [f"    key     {one_line(key)}" for key in finding.where]
            lines += [f"    mended  {finding.mended}"] if finding.mended else []
        if len(mine) > _SHOWN:
            lines.append(f"  … and {len(mine) - _SHOWN} more (--json has all)")
        lines.append(f"  why     {KINDS[code].why}")
        if not all(finding.mended for finding in mine):
            lines.append(f"  remedy  {KINDS[code].remedy}")
        parts.append("\n".join(lines))
    mended = sum(bool(finding.mended) for finding in findings)
    total = f"{len(findings)} finding" + ("" if len(findings) == 1 else "s")
    return "\n\n".join([*parts, total + (f", {mended} mended" if mended else "")])
