"""Does each line of the table in docs/determinism.md say what happens?"""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import datetime
import decimal
import email.utils
import http.client
import inspect
import json
import logging
import multiprocessing
import os
import pathlib
import random
import re
import secrets
import select
import shutil
import signal
import smtplib
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import traceback
import urllib.request
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import anyio
import pytest

from redisworld.replay import install
from redisworld.workflows import Workflows
from tests.constructs.everything import CATALOGUE
from tests.unit.replay_driver import START, Driver

install()

PAGE = (Path(__file__).parents[2] / "docs" / "determinism.md").read_text()
LINES = re.findall(r"^\| `(.+?)` \| (.+?) \|", PAGE, re.MULTILINE)
KINDS = {"body time", "of the run", "refused", "works"}

SPACE: dict[str, Any] = {
    module.__name__.partition(".")[0]: module
    for module in (
        *(anyio, asyncio, datetime, decimal, json, logging, multiprocessing, os, pathlib, random, secrets, select),
        *(shutil, smtplib, socket, sqlite3, subprocess, tempfile, threading, time, traceback, uuid, zoneinfo),
    )
} | {"urllib": urllib, "http": http, "concurrent": concurrent, "email": email, "signal": signal}

wf = Workflows()


@wf.workflow
async def line(example: str) -> str:
    value = eval(compile(example, "app.py", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), dict(SPACE))
    return repr(await value if inspect.isawaitable(value) else value)


@pytest.fixture(autouse=True)
def _connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    ours, theirs = socket.socketpair()
    with ours, theirs, concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # its thread runs
        SPACE.update(CONNECTED=ours, POOL=pool)
        yield


def examples(kind: str) -> list[str]:
    return [example for example, found in LINES if found == kind]


def test_the_table_has_only_kinds_that_are_tested() -> None:
    assert {kind for _, kind in LINES} == KINDS
    assert len(LINES) > 80


@pytest.mark.parametrize("example", examples("body time"))
def test_what_gives_body_time_shows_the_moment_of_the_run(example: str) -> None:
    shown = Driver(line, example).run()

    assert shown == Driver(line, example, run_id="other").run()
    assert isinstance(shown, str), shown
    moment = datetime.datetime.fromtimestamp(START / 1_000)
    years = str(START // 1_000_000), str(moment.year), moment.strftime("%H:%M:%S")
    assert any(year in shown for year in years), shown


@pytest.mark.parametrize("example", examples("of the run"))
def test_what_is_of_the_run_repeats_and_differs_between_runs(example: str) -> None:
    shown = Driver(line, example).run()

    assert shown == Driver(line, example).run()
    assert shown != Driver(line, example, run_id="other").run()
    assert isinstance(shown, str), shown


@pytest.mark.parametrize("example", examples("refused"))
def test_what_is_refused_says_what_to_do_and_where_it_was_called(example: str, tmp_path: Path) -> None:
    error = Driver(line, example).run()

    assert error.type.endswith("ForbiddenInWorkflow"), error
    assert re.search("move it into a step|which wait durably", error.message)
    assert "app.py:1" in error.message, error.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", examples("works"))
def test_what_works_works_in_a_body(example: str) -> None:
    shown = Driver(line, example).run()

    assert isinstance(shown, str), shown


BODIES = {
    "tasks": ("create_task_awaited_later", "task_never_awaited", "all_tasks", "all_tasks_of_steps",
              "set_of_tasks_with_callbacks", "task_cancelled_by_the_body",
              "task_that_cancels_itself", "dict_keyed_by_tasks"),
    "gather": ("gather", "gather_with_a_failure", "gather_return_exceptions", "nested_gather", "gathers_in_a_set"),
    "wait in all": ("wait_all_completed", "wait_first_completed_in_a_loop", "wait_first_exception",
                    "wait_with_a_timeout", "as_completed_over_steps", "as_completed_with_a_timeout"),
    "TaskGroup": ("task_group", "task_group_with_a_failure", "task_groups_in_each_other_with_a_failure"),
    "wait_for": ("wait_for_timed_out", "timeout_passed", "timeout_at", "shield"),
    "sleep": ("sleeps", "callbacks_of_the_loop", "anyio_service_in_a_task_group"),
    "Event": ("event", "lock", "semaphore", "condition", "barrier", "bare_future"),
    "Queue": ("queue_of_a_producer_and_consumers", "priority_queue"),
    "async generators": ("async_generator", "async_generator_left_early", "async_generator_dropped",
                         "async_context_manager", "async_exit_stack"),
    "context variables": ("context_variables",),
    "a step call": ("step_call_handed_around", "step_calls_made_first_and_awaited_in_another_order"),
    "steps in except": ("try_except_else_finally", "steps_in_finally", "cancelled_with_clean_up_steps"),
    "hooks": ("hook_awaited", "hook_iterated", "hook_raced_with_a_timer_that_wins", "approval_with_reminders"),
    "anyio task groups": ("anyio_task_group", "anyio_task_groups_in_each_other_cancelled_together",
                          "anyio_service_in_a_task_group"),
    "anyio cancel scopes": ("anyio_move_on_after", "anyio_fail_after",
                            "anyio_task_group_cancelled_with_clean_up_steps"),
    "anyio sleep": ("anyio_sleep", "anyio_memory_stream_and_event", "anyio_locks_semaphores_and_limiters"),
}  # fmt: skip
"""By how a line of the second table begins, the bodies of ``tests/constructs`` that show it."""


def test_each_line_of_the_second_table_has_bodies_that_show_it() -> None:
    table = PAGE.partition("## asyncio and anyio")[2].partition("Calling a workflow")[0]
    lines = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[2:]

    assert len(lines) == len(BODIES)
    assert all(line.startswith(begins) for line, begins in zip(lines, BODIES, strict=True)), lines
    assert [name for names in BODIES.values() for name in names if name not in CATALOGUE] == []
