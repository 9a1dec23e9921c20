"""Processes and their descendants."""

from pathlib import Path


def descendants(process: int) -> list[int]:
    """Return the processes that it has started, and those that they have."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def command(process: int) -> str:
    """Return its command line; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""
