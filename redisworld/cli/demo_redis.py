"""On which Redis does the demo run: a given one, a private server, or the embedded one?"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from redisworld import spawn
from redisworld.cli.options import from_environment, settings_of
from redisworld.errors import InvalidInput
from redisworld.settings import Settings
from redisworld.world import EMBEDDED_URL, redacted


class Chosen(msgspec.Struct, frozen=True):
    """``kind`` is url, spawned or embedded; ``redis_cli`` reaches a Redis that is still there after the demo."""

    kind: str
    server: str
    settings: Settings
    redis_cli: str | None = None


@contextmanager
def chosen_redis(arguments: argparse.Namespace) -> Iterator[Chosen]:
    """The Redis for the length of the ``with`` block. Raises InvalidInput where there is none."""
    # A namespace of its own: on a given Redis the demo must not meet the workers of real runs.
    namespace = arguments.namespace or from_environment("namespace") or "demo"
    url = arguments.url or from_environment("url")
    if url and not url.startswith(EMBEDDED_URL):
        yield Chosen("url", redacted(url), settings_of(arguments, namespace=namespace), _redis_cli(url))
    elif not url and (binary := spawn.find_server()):
        with spawn.private_redis() as server:
            yield Chosen("spawned", _version(binary), settings_of(arguments, url=server.url, namespace=namespace))
    elif importlib.util.find_spec("fakeredis") and importlib.util.find_spec("lupa"):
        settings = settings_of(arguments, url=url or EMBEDDED_URL, namespace=namespace)
        yield Chosen("embedded", "fakeredis, inside this process", settings)
    else:
        missing = "" if url else "there is no redis-server or valkey-server on PATH, and "
        raise InvalidInput(
            f"{missing}the embedded Redis needs an extra: pip install 'redisworld[embedded]', or give --url"
        )


def _redis_cli(url: str) -> str:
    parts = urlsplit(url)
    return shlex.join(["redis-cli", *(("-s", parts.path) if parts.scheme == "unix" else ("-u", redacted(url)))])


def _version(binary: str) -> str:
    """Like ``/usr/bin/redis-server 7.0.15``; only the path where the binary words it otherwise."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    version = next((word.removeprefix("v=") for word in said.split() if word.startswith("v=")), "")
    return f"{binary} {version}".rstrip()
