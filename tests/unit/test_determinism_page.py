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

import pytest

from redisworld.replay import install
from redisworld.workflows import Workflows
from tests.unit.replay_driver import START, Driver

install()

PAGE = (Path(__file__).parents[2] / "docs" / "determinism.md").read_text()
LINES = re.findall(r"^\| `(.+?)` \| (.+?) \|", PAGE, re.MULTILINE)
KINDS = {"body time", "of the run", "refused", "works"}

SPACE: dict[str, Any] = {
    module.__name__.partition(".")[0]: module
    for module in (
        *(asyncio, datetime, decimal, json, logging, multiprocessing, os, pathlib, random, secrets, select, shutil),
        *(smtplib, socket, sqlite3, subprocess, tempfile, threading, time, traceback, uuid, zoneinfo),
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
    assert "app.py:1" in error.message or "loop." in error.message, error.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", examples("works"))
def test_what_works_works_in_a_body(example: str) -> None:
    shown = Driver(line, example).run()

    assert isinstance(shown, str), shown
