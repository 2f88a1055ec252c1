"""Which Redis does a URL name: one server, or the primary that Sentinels watch?

``redis+sentinel://sentinel-0:26379,sentinel-1:26379/primary/0`` asks the Sentinels at each new connection, so a
failover is an outage like any other: calls are repeated until one reaches the new primary. ``rediss+sentinel://``
speaks TLS to both.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio.connection import parse_url

from redisworld.errors import InvalidInput
from redisworld.settings import Settings

_SENTINEL = "+sentinel"
_SENTINEL_PORT = 26379


def client_of(settings: Settings, kind: Any, sentinels: Any, **options: Any) -> Any:
    """A client of class ``kind`` for ``settings.url``; ``sentinels`` is redis-py's Sentinel class of the same colour.

    User and password of the settings count where the URL has none. Raises ValueError for a URL that redis-py cannot
    read, InvalidInput for one of Sentinels without nodes or the name of their primary.
    """
    options |= {"username": settings.username or None, "password": settings.password or None}
    scheme, _, rest = settings.url.partition("://")
    if not scheme.endswith(_SENTINEL):
        return kind.from_url(settings.url, **options)
    parts = urlsplit(f"{scheme.removesuffix(_SENTINEL)}://{rest}")
    nodes = [_node(text) for text in parts.netloc.rpartition("@")[2].split(",") if text]
    master, _, database = parts.path.strip("/").partition("/")
    if not nodes or not master:
        raise InvalidInput(
            "a URL of Sentinels is redis+sentinel://host:26379,host:26379/PRIMARY/DATABASE; "
            f"here {'the name of the primary' if nodes else 'every host'} is missing"
        )
    url = parts._replace(netloc="sentinel", path=f"/{database}").geturl()
    options |= {name: value for name, value in parse_url(url).items() if name not in ("host", "port")}
    if parts.username or parts.password:
        options |= {"username": unquote(parts.username or "") or None, "password": unquote(parts.password or "")}
    if options.pop("connection_class", None) is not None:  # that of TLS; a Sentinel's pool has one of its own
        options["ssl"] = True
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    # all Sentinels have to be asked within the time of one call, also when the first ones are silent
    patience_s = settings.redis_timeout_ms / 1000 / (2 * len(nodes))
    asking = {
        "password": settings.sentinel_password or None,
        "retry": options["retry"],
        "socket_timeout": patience_s,
        "socket_connect_timeout": patience_s,
    }
    return sentinels(nodes, sentinel_kwargs=asking | tls, **options).master_for(master, redis_class=kind)


def _node(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(_SENTINEL_PORT))
    if not host or not port.isdigit():
        raise InvalidInput(f"a Sentinel is host:port, not {text!r}")
    return host, int(port)
