"""Which calls reach outside of a body: files, sockets, processes, threads? Each is refused before it does anything."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import select
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
from asyncio import events
from types import ModuleType
from typing import Any, Final

from redisworld.replay.forbidden import refusal
from redisworld.replay.loop import ReplayLoop
from redisworld.replay.reach import acting_body, note_handler, refused
from redisworld.replay.standins import Replaced, replace, stand_in

_FILES: Final = (
    *("open", "os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.remove", "os.rename", "os.mkdir", "os.rmdir"),
    *("os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown", "os.lchown", "os.utime", "os.chdir", "os.lockf"),
    *("os.getxattr", "os.setxattr", "os.listxattr", "os.removexattr", "os.chflags", "os.lchflags", "os.lchmod"),
    *("shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.rmtree"),
    *("shutil.make_archive", "shutil.unpack_archive", "shutil.chown", "tempfile.mkstemp", "tempfile.mkdtemp"),
    *("glob.glob", "glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob", "sqlite3.connect", "mmap.__new__"),
    *("fcntl.fcntl", "fcntl.flock", "fcntl.lockf", "fcntl.ioctl"),
)
_NETWORK: Final = (
    *("socket.__new__", "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.getnameinfo"),
    *("socket.gethostbyname", "socket.gethostbyaddr", "socket.gethostname", "socket.getservbyname"),
    *("socket.getservbyport", "socket.sendmsg", "socket.sendto", "socket.sethostname"),
    *("urllib.Request", "http.client.connect", "http.client.send", "ftplib.connect", "ftplib.sendcmd"),
    *("smtplib.connect", "smtplib.send", "imaplib.open", "imaplib.send", "poplib.connect", "poplib.putline"),
    *("nntplib.connect", "nntplib.putline", "telnetlib.Telnet.open", "telnetlib.Telnet.write"),
    *("webbrowser.open", "syslog.openlog", "syslog.syslog"),
)
_PROCESSES: Final = (
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn"),
    *("os.kill", "os.killpg", "os.startfile", "os.startfile/2", "signal.pthread_kill"),
    *("_thread.start_new_thread", "_thread.start_joinable_thread", "builtins.input"),
)

_ASYNC: Final = "use redisworld.sleep() or asyncio.sleep(), which wait durably"

_SHOWN: Final = {
    "socket.__new__": "socket.socket",
    "builtins.input": "input",
    "_thread.start_new_thread": "starting a thread",
    "_thread.start_joinable_thread": "starting a thread",
    "mmap.__new__": "mmap.mmap",
}
"""What people call an event that is named after something internal."""

EVENTS: Final = {name: _SHOWN.get(name, name.partition("/")[0]) for name in (*_FILES, *_NETWORK, *_PROCESSES)}
"""Audit events that a body must not cause, and what the error calls them."""


def audit(event: str, args: tuple[Any, ...]) -> None:
    """Raise ForbiddenInWorkflow when a body's own code causes the event."""
    if event in EVENTS and type(events._get_running_loop()) is ReplayLoop and acting_body() is not None:
        if event == "open" and _is_data_of_installation(args):
            return
        raise refusal(_call(event, args))


def install_waits(replaced: Replaced) -> None:
    """Refuse what blocks and has no audit event, or none yet in a version that is supported."""
    _refuse(time, ("sleep",), replaced, _ASYNC)
    # Its sockets would be refused as well, in words that nobody who wrote asyncio.Runner() understands.
    loops = stand_in(
        asyncio,
        "new_event_loop",
        refused("asyncio.new_event_loop()", "a body has its loop already; move it into a step"),
    )
    for module in (asyncio, asyncio.events):
        replace(module, {"new_event_loop": loops}, replaced)
    _refuse(select, ("select",), replaced)
    _refuse(signal, ("pause", "sigwait", "sigwaitinfo", "sigtimedwait", "alarm", "setitimer"), replaced)
    # The first call of a process tries out directories by writing files; later ones only tell what it found.
    _refuse(tempfile, ("gettempdir", "gettempdirb", "mktemp"), replaced)
    _refuse(os, ("wait", "wait3", "wait4", "waitpid", "waitid", "mkfifo", "mknod"), replaced)
    if sys.version_info < (3, 12):
        starts = stand_in(threading, "_start_new_thread", refused("starting a thread"))
        for module, names in (
            (sys.modules["_thread"], ("start_new_thread", "start_new")),
            (threading, ("_start_new_thread",)),
        ):
            replace(module, dict.fromkeys(names, starts), replaced)
    if (forks := sys.modules.get("_posixsubprocess")) is not None:
        # multiprocessing starts its processes here, past all events, and writes to them only then.
        starts = stand_in(forks, "fork_exec", refused("starting a process"))
        replace(forks, {"fork_exec": starts}, replaced)
    for name in ("send", "sendall", "recv", "recv_into", "recvfrom", "accept"):
        # One that was connected before, perhaps in a step, causes no event any more: a client with a pool.
        _refuse_method(socket.socket, name, f"socket.{name}()")
    # Nor does a pool whose threads run already, or another loop. All of them hand out such a future first.
    _refuse_method(concurrent.futures.Future, "__init__", "handing work to another thread, process or loop")


def install_handlers(replaced: Replaced) -> None:
    """Refuse to set handlers of signals in bodies, and let those that are set elsewhere do what they like."""
    for number in signal.valid_signals():
        note_handler(signal.getsignal(number))
    original = signal.signal

    @functools.wraps(original)
    def handle(signalnum: int, handler: Any) -> Any:
        if acting_body() is not None:
            raise refusal("signal.signal()")
        note_handler(handler)
        return original(signalnum, handler)

    replace(signal, {"signal": handle}, replaced)


def _refuse(module: ModuleType, names: tuple[str, ...], replaced: Replaced, hint: str = "move it into a step") -> None:
    known = [name for name in names if hasattr(module, name)]
    new = {name: stand_in(module, name, refused(f"{module.__name__}.{name}()", hint)) for name in known}
    replace(module, new, replaced)


def _refuse_method(kind: type, name: str, what: str) -> None:
    original, running = getattr(kind, name), events._get_running_loop

    @functools.wraps(original)
    def method(self: object, *args: Any, **kwargs: Any) -> Any:
        if type(running()) is ReplayLoop and acting_body() is not None:
            raise refusal(what)
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


def _is_data_of_installation(args: tuple[Any, ...]) -> bool:
    # Time zones, and what installed packages read on first use and keep: as stable as their code. Refused, it would
    # be refused only to the first body of a process that asks for it. zoneinfo reads in C, so no frame tells of it.
    path, mode = args[:2]
    roots = (*_INSTALLED, *getattr(sys.modules.get("zoneinfo"), "TZPATH", ()))
    return mode == "r" and isinstance(path, str) and any(path.startswith(f"{root}{os.sep}") for root in roots)


_INSTALLED: Final = frozenset(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
"""Directories of the standard library and of installed packages."""


def _call(event: str, args: tuple[Any, ...]) -> str:
    shown = EVENTS[event]
    if " " in shown:
        return shown
    return f"{shown}({args[0]!r:.80})" if args and isinstance(args[0], str | bytes) else f"{shown}()"
