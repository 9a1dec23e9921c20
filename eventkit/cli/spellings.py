"""Sqew's spelling of commands: `rewritten` turns it into ours before they are parsed, so that no help shows it."""

import re
from collections.abc import Mapping, Sequence

SPELLINGS: Mapping[str, str] = {
    "message enqueue": "task enqueue {queue} {payload} --key={idempotency-key} --delay={delay-ms}ms",
    "message poll": "task poll {queue} --limit={batch} --lease={visibility-ms}ms",
    "message get": "task poll {queue} --limit={batch} --lease={visibility-ms}ms",
    "message ack": "task ack {queue} {ids} current",
    "message nack": "task nack {queue} {ids} current --delay={delay-ms}ms",
    "message extend-lease": "task extend-lease {queue} {id} current {ms}ms",
    "message remove": "task remove {queue} {id}",
    "message peek": "queue peek {queue}",
    "queue add": "queue add {name} --lease={visibility-ms}ms",
    **{f"queue {word}": f"queue {word} {{name}}" for word in ("rm", "show", "purge", "peek")},
    "queue requeue-dlq": "dead requeue {name}",
    "dlq list": "dead list {queue}",
    "dlq show": "dead show {queue} {id}",
    "dlq purge": "dead purge {queue}",
    "dlq requeue": "dead requeue {queue} {ids}",
    "stats": "stats {queue}",
    "metrics": "overview --json",
}
"""Our spelling of each command, with the values of its options where they are arguments or have another name."""

_VALUE = re.compile(r"{([a-z-]+)}")


def rewritten(arguments: Sequence[str]) -> list[list[str]]:
    """Return the commands in our spelling: one, or one for each of several ids; ``--json`` may come first."""
    json = [*arguments[:1]] == ["--json"]
    words = list(arguments[json:])
    name = next((name for name in (" ".join(words[:2]), *words[:1]) if name in SPELLINGS), None)
    commands = [words] if name is None else _filled(SPELLINGS[name], words[len(name.split()) :])
    return [[*command, "--json"] if json else command for command in commands]


def _filled(ours: str, given: list[str]) -> list[list[str]]:
    names, values, others, words = set(_VALUE.findall(ours)), dict[str, str](), list[str](), iter(given)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in names:
            values[name] = value if equals else next(words, "")
        else:
            others.append(word)
    commands = []
    for id in values.get("ids", "").split(","):
        command = []
        for part in ours.split():
            if (found := _VALUE.search(part)) is None:
                command += [part] if part != "current" or values else []
            elif (name := found[1]) in values:
                command.append(part.replace(found[0], id if name == "ids" else values[name]))
        commands.append(command + others)
    return commands
