"""Which options has a process that stays: where it serves its metrics and probes, and how it logs?"""

from __future__ import annotations

from redisworld.cli import logs
from redisworld.cli.options import OneOf, Parser, add_option, whole

OFF = -1
"""The port of a process that serves nothing."""


def add_serving_options(parser: Parser) -> None:
    """``--metrics-port``, ``--metrics-host``, ``--log-level`` and ``--log-format``."""
    add_option(
        parser,
        "--metrics-port",
        "metrics_port",
        "port of /metrics, /healthz, /readyz; 0 takes a free one, none or -1 is off (default: 9464)",
        default="9464",
        type=_port,
        metavar="PORT",
    )
    add_option(
        parser,
        "--metrics-host",
        "metrics_host",
        "address to serve on (default: ::, which is all of IPv4 and IPv6)",
        default="::",
        metavar="HOST",
    )
    add_option(
        parser,
        "--log-level",
        "log_level",
        f"{', '.join(logs.LEVELS)} (default: info)",
        default="info",
        type=OneOf(logs.LEVELS),
        metavar="LEVEL",
    )
    add_option(
        parser,
        "--log-format",
        "log_format",
        "text, or json for one object a line (default: text)",
        default="text",
        type=OneOf(logs.FORMATS),
        metavar="FORMAT",
    )


def _port(text: str) -> int:
    return OFF if text.lower() == "none" else whole(OFF, 65_535)(text)
