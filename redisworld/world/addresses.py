"""Which Redis does a URL name: one server, the primary that Sentinels watch, or nodes of a cluster?

``redis+sentinel://sentinel-0:26379,sentinel-1:26379/primary/0`` asks the Sentinels at each new connection, so a
failover is an outage like any other: calls are repeated until one reaches the new primary. ``rediss+sentinel://``
speaks TLS to both.

``redis+cluster://node-0:6379,node-1:6379`` names nodes of a Redis Cluster, of which one has to be there when a process
begins; they name the others. A node of a cluster that a plain ``redis://node-0:6379`` names is enough.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from redis.asyncio.connection import parse_url
from redis.exceptions import RedisError

from redisworld.errors import InvalidInput
from redisworld.settings import Settings

_SENTINEL = "+sentinel"
_SENTINEL_PORT = 26379
_OURS = {
    **dict.fromkeys(("decode_responses", "encoding", "encoding_errors", "max_connections", "retry"), ""),
    "socket_timeout": ": set REDISWORLD_REDIS_TIMEOUT_MS",
}
"""Options that would change replies, starve readers or end their blocking reads, with what there is instead."""
_CLUSTER = "+cluster"
_PORT = 6379

Address = tuple[str, int]
"""Host and port of one server."""


def redacted(url: str) -> str:
    """The URL without its password, for people."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        netloc, password = parts.netloc, parts.password
    except ValueError:
        return f"{scheme}://***"
    if "@" in parts.path + parts.query + parts.fragment:  # a password with '/', '?' or '#' in it
        return f"{scheme}://***"
    if password:
        netloc = f"{parts.username or ''}:***@{netloc.rpartition('@')[2]}"
    query = re.sub(r"(^|&)(password|username)=[^&]*", r"\1\2=***", parts.query)
    if (netloc, query) == (parts.netloc, parts.query):
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def client_of(settings: Settings, kind: Any, sentinels: Any, **options: Any) -> Any:
    """A client of class ``kind`` for ``settings.url``; ``sentinels`` is redis-py's Sentinel class of the same colour.

    User and password of the settings count where the URL has none. Raises ValueError for a URL that redis-py cannot
    read, InvalidInput for one of Sentinels without nodes or the name of their primary, and as ``check_url``.
    """
    check_url(settings.url)
    try:
        client = _client(settings, kind, sentinels, **options)
        client.connection_pool.make_connection()  # connects to nobody yet
    except (TypeError, AttributeError, RedisError) as error:
        # an option that no connection takes, or not one of this scheme, like ssl_… of redis://, or no such value of it
        raise ValueError(str(error).partition("() ")[2] or str(error)) from error
    return client


def check_url(url: str) -> None:
    """Raises InvalidInput for what redis-py passes over without a word, and for options that are not the URL's."""
    if "://" not in url:
        raise InvalidInput("a URL of Redis begins with redis://, rediss:// or unix://")
    parts = urlsplit(url)
    path = parts.path.strip("/")
    database = path.partition("/")[2] if parts.scheme.endswith(_SENTINEL) else path
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise InvalidInput(f"a URL of Redis ends with the number of a database, not with {database!r}")
    options = parse_qs(parts.query, keep_blank_values=True)
    for database in options.get("db", ()):
        if not database.isdecimal():
            raise InvalidInput(f"db in a URL of Redis is the number of a database, not {database!r}")
    for option in sorted(_OURS.keys() & options.keys()):
        raise InvalidInput(f"the URL of Redis has the option {option}, which redisworld decides itself{_OURS[option]}")


def _client(settings: Settings, kind: Any, sentinels: Any, **options: Any) -> Any:
    options |= {"username": settings.username or None, "password": settings.password or None}
    scheme, _, rest = settings.url.partition("://")
    if not scheme.endswith(_SENTINEL):
        return kind.from_url(settings.url, **options)
    parts = urlsplit(f"{scheme.removesuffix(_SENTINEL)}://{rest}")
    nodes = [_address(text, _SENTINEL_PORT, "a Sentinel") for text in _hosts(parts.netloc)]
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


def nodes_named(url: str) -> list[Address]:
    """The nodes of a cluster that a ``redis+cluster://`` URL names; none for a URL of another kind.

    Raises InvalidInput for one without nodes, or with a database.
    """
    scheme, _, rest = url.partition("://")
    if not scheme.endswith(_CLUSTER):
        return []
    parts = urlsplit(f"{scheme.removesuffix(_CLUSTER)}://{rest}")
    nodes = [_address(text, _PORT, "a node of a cluster") for text in _hosts(parts.netloc)]
    if not nodes or parts.path.strip("/0") or any(db.strip("0") for db in parse_qs(parts.query).get("db", ())):
        raise InvalidInput(
            "a URL of a cluster is redis+cluster://host:6379,host:6379; "
            f"here {'is a database, and a cluster has none' if nodes else 'every host is missing'}"
        )
    return nodes


def node_named(url: str) -> Address | None:
    """The server that a plain URL names; None where it names a socket."""
    named: dict[str, Any] = dict(parse_url(url))
    return None if "path" in named else (named.get("host", "localhost"), named.get("port", _PORT))


def url_at(url: str, address: Address) -> str:
    """The URL of one node of the cluster that ``url`` names: scheme, user and options are the same at all of them."""
    scheme, _, rest = url.partition("://")
    parts = urlsplit(f"{scheme.removesuffix(_CLUSTER)}://{rest}")
    user, at, _ = parts.netloc.rpartition("@")
    host, port = address
    return parts._replace(netloc=f"{user}{at}{f'[{host}]' if ':' in host else host}:{port}", path="").geturl()


def _hosts(netloc: str) -> list[str]:
    return [text for text in netloc.rpartition("@")[2].split(",") if text]


def _address(text: str, usual_port: int, what: str) -> Address:
    host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", str(usual_port))
    if not host or not port.isdigit():
        raise InvalidInput(f"{what} is host:port, not {text!r}")
    return host.strip("[]"), int(port)
