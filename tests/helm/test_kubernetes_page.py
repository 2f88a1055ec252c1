"""Is docs/kubernetes.md true? Its values render, and its example runs: command, environment and probes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from redisworld import World
from redisworld.spawn import private_redis
from tests.helm import checks
from tests.helm.kubelet import running
from tests.helm.rendering import container, environment, one, render
from tests.helm.schema import schema
from tests.integration.cli_process import ROOT, command

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
VALUES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_every_block_of_values_renders_and_holds_together() -> None:
    assert len(VALUES) == 3
    for block in VALUES:
        assert checks.problems(render(yaml.safe_load(block))) == []


def test_every_value_the_page_names_is_one() -> None:
    for path in set(re.findall(r"`([a-z][A-Za-z]+(?:\.[A-Za-z]+)+)`", PAGE)) - {"example.yaml"}:
        judged = schema()
        for key in path.split("."):
            assert key in judged["properties"], path
            judged = judged["properties"][key]


def test_every_command_of_redisworld_the_page_shows_exists() -> None:
    for verb in set(re.findall(r"\bredisworld (worker|start|doctor|exporter|run \w+)", PAGE)):
        assert command(*verb.split(), "--help").returncode == 0, verb


@pytest.mark.anyio
async def test_the_example_runs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "thumbnails.py", tmp_path / "app.py")
    documents = render(yaml.safe_load(VALUES[0]))
    spec = container(documents, "-default/worker")
    assert environment(spec)["REDISWORLD_URL"].startswith("redis://rel-redisworld-trial-redis:6379/")
    grace = one(documents, "Deployment", "-default")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    with private_redis(tcp=True, allow_wheel=True) as server:
        assert server.tcp_url is not None
        here = {"REDISWORLD_URL": server.tcp_url, "REDISWORLD_METRICS_HOST": "127.0.0.1"}
        with running(spec, directory=tmp_path, **here) as worker:
            for probe in checks.PROBES:
                worker.becomes(probe, True)
            async with World.connect(server.tcp_url) as world:
                assert len(world.partitions) == int(environment(spec)["REDISWORLD_PARTITIONS"])
                started = command(
                    "start", "examples.thumbnails:publish", "--args", '["cat.png"]', "--run-id", "page", **here
                )
                assert started.returncode == 0, started.stderr
                await world.run("page").result(timeout=60)
            assert worker.terminate(grace) == 0, worker.log()
