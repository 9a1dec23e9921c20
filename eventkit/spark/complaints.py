"""What Spark complains of, in one line, instead of its own and Java's whole way there."""

import re

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_OURS = re.compile(r"^(?:[\w.]*\.)?(?:ValueError|EventkitError|[A-Z]\w+): (.+)$", re.MULTILINE)


def conditions(error: BaseException) -> list[str]:
    """The names that Spark has for what went wrong, outermost first."""
    return list(dict.fromkeys(_CONDITION.findall(str(error))))


def told(error: BaseException) -> str:
    """Why Spark has failed, in a line."""
    text = str(error)
    if found := re.search(r"\[INVALID_VARIANT_CAST\] (.{,300}?) Please use", text, re.DOTALL):
        return (
            f"{' '.join(found[1].split())} Write payload:total::double, try_cast(payload:total AS double) or "
            f"try_variant_get(payload, '$.total', 'double'), which are NULL for a value of another type"
        )
    if "PYTHON_DATA_SOURCE_ERROR" in text and (lines := _OURS.findall(text)):
        return str(lines[-1]).strip()
    if found := re.search(r"\[[A-Z][A-Z0-9_.]*\] (.+?)(?: SQLSTATE: \w+|\n==|\n\n|$)", text, re.DOTALL):
        text = found[1]
    text = re.split(r"\n\s*at |\nJVM stacktrace|\n== ", text)[0]
    return " ".join(text.split())[:500]


def is_sparks(error: BaseException) -> bool:
    """Whether it comes from Spark."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")
