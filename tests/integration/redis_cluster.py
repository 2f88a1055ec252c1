"""A Redis Cluster for tests: primaries and replicas on loopback, each a ``redis-server`` of its own.

It is put together by hand, for ``redis-cli --cluster create`` takes ten seconds to agree. Everything ends with the
block.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redisworld.spawn import find_server
from redisworld.world.topology import slot_of

SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000
WAIT_S = 60.0
_TRIES = 5


class Node:
    """One server of the cluster."""

    def __init__(self, binary: str, directory: Path, port: int, args: tuple[str, ...]) -> None:
        self.port = port
        self._command = [
            binary,
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--daemonize", "no"),
            *("--save", "", "--appendonly", "no", "--cluster-enabled", "yes"),
            *("--cluster-config-file", f"nodes-{port}.conf", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
            *("--cluster-port", str(port + 10_000), "--repl-diskless-sync-delay", "0"),
            # a replica of a cut link may stand for election whatever the time since then
            *("--cluster-replica-validity-factor", "0", *args),
        ]
        self.log = directory / f"{port}.log"
        self.start()

    def start(self) -> None:
        """Start it, again after ``kill``."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.client = redis.Redis(
            port=self.port, socket_timeout=5, socket_connect_timeout=5, retry=Retry(NoBackoff(), 0)
        )
        until(self._answers, f"a node that answers; its log:\n{self.log.read_text()[-2000:]}")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"a node of the cluster ended by itself:\n{self.log.read_text()[-2000:]}")
        return self.client.ping() is True

    def kill(self) -> None:
        """SIGKILL, as a machine that is gone."""
        self.client.close()
        self.process.kill()
        self.process.wait()

    def tell(self, *command: str | int) -> object:
        """The reply to a command as it is."""
        return self.client.execute_command("CLUSTER", *command)

    @property
    def name(self) -> str:
        """By which the others know it."""
        found = self.tell("MYID")
        return found.decode() if isinstance(found, bytes) else str(found)


class RedisCluster:
    """The nodes: primaries first, then the replicas in the same order."""

    def __init__(self, nodes: list[Node], replicas: int) -> None:
        self.nodes = nodes
        self.primaries = nodes[: len(nodes) // (1 + replicas)]
        self.replicas = nodes[len(self.primaries) :]

    @property
    def url(self) -> str:
        """The URL of one node."""
        return f"redis://127.0.0.1:{self.primaries[0].port}"

    @property
    def seeds(self) -> str:
        """The URL that names all nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def primary_of(self, key: str) -> Node:
        """The node that serves a key now, by one that lives."""
        slot = slot_of(key)
        for asked in self._living():
            for first, last, primary, *_ in asked.tell("SLOTS"):  # type: ignore[attr-defined]
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(f"nobody serves slot {slot}")

    def _living(self) -> list[Node]:
        return [node for node in self.nodes if node.process.poll() is None]

    def empty(self) -> None:
        """Delete all keys."""
        for node in self._living():
            if node.client.info("replication")["role"] == "master":
                node.client.flushall()

    def wait_until_well(self) -> None:
        """Return when all living nodes agree that every slot is served, and every replica follows its primary."""

        def well() -> bool:
            return all(self._sees_all_well(node) for node in self._living())

        until(well, "a cluster whose nodes agree")

    def _sees_all_well(self, node: Node) -> bool:
        replication = node.client.info("replication")
        follows = replication["role"] == "master" or replication["master_link_status"] == "up"
        return follows and b"cluster_state:ok" in node.tell("INFO")  # type: ignore[operator]

    def wait_until_replicated(self) -> None:
        """Return when the replicas have what their primaries have acknowledged."""
        for primary in self.primaries:
            if primary.process.poll() is None:
                primary.client.wait(1, 5_000)

    def move_slot(self, key: str, target: Node, *, between: Callable[[int], None] = lambda moved: None) -> None:
        """Move the slot of a key to another primary while it is in use, as ``redis-cli --cluster reshard`` does.

        ``between`` is called after each few keys that have gone.
        """
        slot, source = slot_of(key), self.primary_of(key)
        target.tell("SETSLOT", slot, "IMPORTING", source.name)
        source.tell("SETSLOT", slot, "MIGRATING", target.name)
        moved = 0
        while keys := source.tell("GETKEYSINSLOT", slot, 10):
            assert isinstance(keys, list)
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
            moved += len(keys)
            between(moved)
        for node in (target, source, *(node for node in self.primaries if node not in (target, source))):
            if node.process.poll() is None:
                node.tell("SETSLOT", slot, "NODE", target.name)


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for it. Redis that does not answer yet is no reason to give up."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if true():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s in vain for {what}"
        time.sleep(0.02)


@contextmanager
def redis_cluster(*, primaries: int = 3, replicas: int = 0, args: tuple[str, ...] = ()) -> Iterator[RedisCluster]:
    """A cluster for the length of the block; ``replicas`` for each primary."""
    binary = find_server(allow_wheel=True)
    assert binary is not None, "these tests need a redis-server"
    directory = Path(tempfile.mkdtemp(prefix="rw-cluster-"))
    nodes: list[Node] = []
    try:
        nodes.extend(Node(binary, directory, _free_port(), args) for _ in range(primaries * (1 + replicas)))
        cluster = RedisCluster(nodes, replicas)
        _join(cluster)
        yield cluster
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _join(cluster: RedisCluster) -> None:
    each = SLOTS // len(cluster.primaries)
    for number, node in enumerate(cluster.primaries):
        last = SLOTS - 1 if node is cluster.primaries[-1] else (number + 1) * each - 1
        node.tell("ADDSLOTSRANGE", number * each, last)
    for number, node in enumerate(cluster.nodes):
        node.tell("SET-CONFIG-EPOCH", number + 1)
        node.tell("MEET", "127.0.0.1", cluster.nodes[0].port, cluster.nodes[0].port + 10_000)
    for number, replica in enumerate(cluster.replicas):
        primary = cluster.primaries[number % len(cluster.primaries)]
        until(lambda replica=replica, primary=primary: _follows(replica, primary), "a replica that knows its primary")
    cluster.wait_until_well()


def _follows(replica: Node, primary: Node) -> bool:
    replica.tell("REPLICATE", primary.name)
    return True


def _free_port() -> int:
    """A port whose bus port, 10,000 above, is free too."""
    for _ in range(200):
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            try:
                bus.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port
    raise RuntimeError("no free pair of ports")
