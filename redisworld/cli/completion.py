"""How does a shell know the words of the command line? ``redisworld completion bash`` prints what it has to load."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from redisworld.cli.commands import add_command
from redisworld.cli.options import OneOf
from redisworld.cli.program import parser

_SHELLS = ("bash", "zsh", "fish")


class _At(msgspec.Struct, frozen=True):
    """A place on the command line: the words that lead there, and what may follow, each with a few words about it."""

    path: str
    commands: dict[str, str]
    options: dict[str, str]
    values: dict[str, tuple[str, ...]]
    """Of options that take one of a few words."""


def add_to(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands, "completion", _completion,
        does="Print a script that completes commands and options in a shell.",
        example='source <(redisworld completion bash)    # in ~/.bashrc; zsh alike; fish: … completion fish | source',
    )  # fmt: skip
    command.add_argument("shell", metavar="SHELL", type=OneOf(_SHELLS), help=f"one of {', '.join(_SHELLS)}")


def _completion(arguments: argparse.Namespace) -> int:
    places = list(_places(parser(), ""))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](places))
    return 0


def _places(of: argparse.ArgumentParser, path: str) -> Iterator[_At]:
    """This place and all below it, from the parsers themselves."""
    commands: dict[str, argparse.ArgumentParser] = {}
    options: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands |= action.choices
        for option in action.option_strings:
            options[option] = _about(action.help)
            if isinstance(action.type, OneOf):
                values[option] = action.type.words
        if not action.option_strings and isinstance(action.type, OneOf):
            commands_of = dict.fromkeys(action.type.words, "")
            yield _At(path, commands_of, options, values)
            return
    yield _At(path, {name: _about(found.description) for name, found in commands.items()}, options, values)
    for name, found in commands.items():
        yield from _places(found, f"{path} {name}".strip())


def _about(text: str | None) -> str:
    """Its beginning, without what a shell would take for its own."""
    first = re.split(r"[:;.(\[]", text or "")[0]
    return "".join(c for c in first if c.isalnum() or c in " ,-").strip()


def _steps(places: list[_At]) -> str:
    """Patterns of a place and the word that leads on to another place."""
    paths = {at.path for at in places}
    ways = [f"{at.path} {name}" for at in places for name in at.commands]
    return "|".join(f'"{way}"' for way in ways if way.strip() in paths)


def _bash(places: list[_At]) -> str:
    values = [
        f'        "{at.path} {option}") words="{" ".join(words)}" ;;'
        for at in places
        for option, words in at.values.items()
    ]
    words = [f'        "{at.path}") words="{" ".join([*at.commands, *at.options])}" ;;' for at in places]
    return "\n".join(
        (
            "# redisworld completion for bash: source <(redisworld completion bash)",
            "_redisworld() {",
            '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at="" word words=""',
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            '        case "$at $word" in',
            f'            {_steps(places)}) at="${{at:+$at }}$word" ;;',
            "        esac",
            "    done",
            '    case "$at $prev" in',
            *values,
            "    esac",
            '    [[ -n "$words" ]] || case "$at" in',
            *words,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
            "}",
            "complete -o default -F _redisworld redisworld",
        )
    )


def _zsh(places: list[_At]) -> str:
    def described(words: dict[str, str]) -> str:
        return " ".join(f"'{name}:{about}'" for name, about in words.items())

    values = [
        f'        "{at.path} {option}") compadd {" ".join(words)}; return ;;'
        for at in places
        for option, words in at.values.items()
    ]
    return "\n".join(
        (
            "#compdef redisworld",
            "# redisworld completion for zsh: source <(redisworld completion zsh), or a file _redisworld in $fpath",
            "_redisworld() {",
            '    local at="" word',
            "    local -a commands options",
            '    for word in "${(@)words[2,CURRENT-1]}"; do',
            '        case "$at $word" in',
            f'            {_steps(places)}) at="${{at:+$at }}$word" ;;',
            "        esac",
            "    done",
            '    case "$at ${words[CURRENT-1]}" in',
            *values,
            "    esac",
            '    case "$at" in',
            *(
                f'        "{at.path}") commands=({described(at.commands)}) options=({described(at.options)}) ;;'
                for at in places
            ),
            "    esac",
            "    (( $#commands )) && _describe command commands",
            '    [[ "$PREFIX" == -* ]] && _describe -o option options',
            "    (( $#commands )) || _default",
            "}",
            'if [[ "${funcstack[1]}" == _redisworld ]]; then _redisworld "$@"; else compdef _redisworld redisworld; fi',
        )
    )


def _fish(places: list[_At]) -> str:
    lines = [
        "# redisworld completion for fish: redisworld completion fish | source",
        "function __redisworld_at",
        '    set -l at ""',
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$at $word"',
        f"            case {_steps(places).replace('|', ' ')}",
        '                set at (string trim "$at $word")',
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
        "complete -c redisworld -f",
    ]
    for at in places:
        where = f"complete -c redisworld -n '__redisworld_at \"{at.path}\"'"
        lines += [f"{where} -a {name} -d '{about}'" for name, about in at.commands.items()]
        for option, about in at.options.items():
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            words = f" -x -a '{' '.join(at.values[option])}'" if option in at.values else ""
            lines.append(f"{where} {kind}{words} -d '{about}'")
    return "\n".join(lines)
