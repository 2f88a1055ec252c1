"""Which keys does a script touch, and which of them may it?

The shim is put around a script's text: ``redis.call`` and ``redis.pcall`` of the wrapped script look at every key
first. One that is not in the slot of KEYS[1], or has none of the names that the header's ``@key`` and ``@derived``
list, is an error. The wrapped script answers ``[reply, keys touched, without the tag]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.scripts.headers import header

NAMES: dict[str, tuple[str, ...]] = {
    "row": ("run:[^:]+",),
    "log": ("run:[^:]+:log",),
    "hooks": ("run:[^:]+:hooks",),
    "resumes": ("run:[^:]+:resumes",),
    "outs": ("run:[^:]+:outs",),
    "outputs": ("run:[^:]+:out:[^:]+",),
    "token": ("hook:.+",),
    "releases": ("releases",),
    "streams": ("steps", "steps[:@].+", "workflows", "workflows@.+"),
    "delayed": ("delayed",),
    "bodies": ("delayed:body",),
    "nudge": ("nudge",),
    "dead": ("dead",),
    "indexes": ("index:created", "index:status:[a-z]+"),
    "expiring": ("expiring",),
    "reclaim": ("reclaim:.+",),
    "stats": ("stats",),
}
"""The words of ``@key`` and ``@derived``, and the keys each stands for: patterns that Lua and Python read alike."""

_SHIM = """
local touched, seen = {}, {}
local redis = (function()
  local real, tag, patterns = redis, string.match(KEYS[1], '^(.-{[^}]*}:)'), {%s}
  local keyless = {TIME = true, PUBLISH = true}
  local second = {XGROUP = true, XINFO = true}
  local all = {DEL = true, UNLINK = true, EXISTS = true}
  local first = {}
  for word in string.gmatch([[%s]], '%%u+') do first[word] = true end

  local function check(key)
    local name = string.sub(key, 1, #tag) == tag and string.sub(key, #tag + 1)
    local known = false
    for _, pattern in ipairs(patterns) do known = known or name and string.match(name, '^' .. pattern .. '$') end
    if not known then error('the script touches ' .. key .. ', which its header does not declare', 0) end
    if not seen[name] then touched[#touched + 1] = name end
    seen[name] = true
  end

  local function look(command, ...)
    local keys = {...}
    if all[command] then
      for _, key in ipairs(keys) do check(key) end
    elseif second[command] then
      check(keys[2])
    elseif first[command] then
      check(keys[1])
    elseif not keyless[command] then
      error('the shim does not know where the keys of ' .. command .. ' are', 0)
    end
  end

  return setmetatable({
    call = function(...) look(...) return real.call(...) end,
    pcall = function(...) look(...) return real.pcall(...) end,
  }, {__index = real})
end)()
local function script()
%s
end
return {script(), touched}
"""

_FIRST = (
    "TYPE GET SET HGET HSET HDEL HMGET HEXISTS HINCRBY HLEN HSETNX HGETALL LLEN LRANGE LINDEX RPUSH ZADD ZREM ZRANGE "
    "ZSCORE ZCARD PEXPIRE PERSIST XADD XACK XDEL XLEN XRANGE XPENDING XCLAIM XAUTOCLAIM SADD SREM SMEMBERS HSCAN "
    "RENAME PTTL"
)


def shimmed(script: str, text: str) -> str:
    """The text of the script under the shim, with the keys that the header of ``script`` declares."""
    patterns = [pattern for name in declared(script) for pattern in NAMES[name]]
    return _SHIM % (", ".join(f"'{pattern}'" for pattern in patterns), _FIRST, text)


def declared(script: str) -> list[str]:
    """The names of keys that a header lists."""
    return sorted(header(script).keys | header(script).derived)


def names_of(keys: Iterable[str]) -> set[str]:
    """The names of these keys, given without their tag."""
    return {name for key in keys for name in NAMES if is_a(name, key)}


def is_a(name: str, key: str) -> bool:
    """Whether a key, without its tag, has this name."""
    return any(re.fullmatch(pattern, key) for pattern in NAMES[name])
