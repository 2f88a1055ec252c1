"""What does a process answer over HTTP? /metrics, /healthz and /readyz, from a thread of its own."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Protocol

from redisworld.errors import InvalidInput
from redisworld.facts import fact
from redisworld.metrics import CONTENT_TYPE


class Verdicts(Protocol):
    """Who knows how this process is."""

    def alive(self) -> str | None:
        """None when alive, else why not."""

    def ready(self) -> str | None:
        """None when ready, else why not."""


_SILENT_S = 30
"""How long a client may take over its request: each connection has a thread."""


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer would ask DNS for the host's full name, and a start wait for an answer that nobody needs.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever looks only whether the port is open, as some balancers do, breaks off, and that is no news."""
        if not isinstance(error := sys.exception(), OSError):
            fact(logging.ERROR, "request failed", client=client_address, trace=error)


class Server:
    """Serves while the context is open; a blocked event loop does not silence it. ``port`` 0 takes a free one.

    Host ``::`` is every address, of IPv4 as well as of IPv6, where a pod or a host may have only one of both.
    """

    def __init__(self, host: str, port: int, *, exposition: Callable[[], bytes], health: Verdicts) -> None:
        routes: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE, exposition()),
            "/healthz": lambda: _verdict(health.alive()),
            "/readyz": lambda: _verdict(health.ready()),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENT_S

            def do_GET(self) -> None:
                self.wfile.write(self._begin())

            def do_HEAD(self) -> None:
                self._begin()

            def _begin(self) -> bytes:
                """Send all but the body, which is handed back."""
                route = routes.get(self.path.partition("?")[0])
                status, kind, body = route() if route else (404, "text/plain", b"try /metrics, /healthz or /readyz\n")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return body

            def log_message(self, format: str, *args: object) -> None:
                """Probes and scrapes are no news."""

        if host == "::" and not socket.has_dualstack_ipv6():
            host = "0.0.0.0"
        shown = f"[{host}]" if ":" in host else host
        try:
            self._server = _HTTPServer(host, port, Handler)
        except (OSError, OverflowError) as error:
            raise InvalidInput(f"cannot serve metrics on {shown}:{port}, port 0 takes a free one: {error}") from error
        self.port: int = self._server.server_address[1]
        self.url = f"http://{shown}:{self.port}"

    def __enter__(self) -> Server:
        threading.Thread(target=self._server.serve_forever, name="redisworld-http", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _verdict(problem: str | None) -> tuple[int, str, bytes]:
    return (200, "text/plain", b"ok\n") if problem is None else (503, "text/plain", f"{problem}\n".encode())
