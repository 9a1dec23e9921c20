"""Resolution of a path in a query to a value in the file."""

import difflib
import json
import re
from collections.abc import Sequence
from typing import NoReturn

from . import SelectError, tree
from .files import Field, File, kind_of
from .kinds import Kind, Value, of_text, quoted


class Names:
    """The names that the query *sql* over *file* can use, according to its FROM."""

    def __init__(self, sql: str, file: File, source: tree.Source) -> None:
        self._sql = sql
        self._file = file
        self._columns = file.columns or ()
        self._alias = source.alias or tree.Name("S3Object")
        if source.alias is None and source.steps and isinstance(last := source.steps[-1], tree.Name):
            self._alias = last
        self.paths: dict[tuple[tree.Step, ...], str] = {}
        """The paths into JSON records, with the column of each."""

    def value(self, path: tree.Path) -> Value:
        """Return the value at *path*."""
        steps = path.steps
        first = steps[0]
        # A column with the name of the table remains accessible.
        if self._is_alias(first) and (len(steps) > 1 or not self._columns or not self._named(first, path.at)):
            steps = steps[1:]
        if self._file.columns is None:
            return Value(self.paths.setdefault(steps, f"p{len(self.paths)}") if steps else "r", Kind.ANY)
        if not steps:
            self._refuse("EvaluatorBindingDoesNotExist", "a row is not a value: write * for all its columns", path.at)
        if isinstance(steps[0], int):
            self._refuse("EvaluatorBindingDoesNotExist", "a row is not an array: name a column, as in s._1", path.at)
        place = self._place(steps[0], path.at)
        column = self._columns[place]
        if self._file.format == "parquet":
            return self._nested(column, steps[1:], path.at)
        if len(steps) > 1:
            reason = f"{column.name} is a text: a column of CSV has no fields"
            self._refuse("EvaluatorBindingDoesNotExist", reason, path.at)
        return Value(f"c{place}", Kind.ANY)

    def _is_alias(self, step: tree.Step) -> bool:
        return isinstance(step, tree.Name) and _same(step, self._alias.text, self._alias.quoted)

    def _named(self, step: tree.Step, at: int) -> bool:
        return isinstance(step, tree.Name) and any(_same(step, column.name) for column in self._columns)

    def _place(self, name: tree.Name, at: int) -> int:
        """Return the number of the column."""
        csv = self._file.format == "csv"
        if csv and not name.quoted and re.fullmatch(r"_[1-9][0-9]{0,8}", name.text):
            number = int(name.text[1:])
            if number > len(self._columns):
                reason = f"{name.text} is beyond the first row, which has {len(self._columns)} columns"
                self._refuse("InvalidColumnIndex", reason, at)
            return number - 1
        if csv and self._file.csv.header != "use":
            reason = f"{name.text} is a name, but the header is not used: write _1, or pass --csv-header use"
            self._refuse("MissingHeaders", reason, at)
        return self._among([column.name for column in self._columns], name, "the file", at)

    def _nested(self, column: Field, steps: Sequence[tree.Step], at: int) -> Value:
        """Return a value inside a column of Parquet."""
        from pyarrow import types

        sql, type = quoted(column.name), column.type
        for step in steps:
            if isinstance(step, int) and (types.is_list(type) or types.is_large_list(type)):
                sql, type = f"get({sql}, {step})", type.value_type
            elif isinstance(step, tree.Name) and types.is_struct(type):
                inner = type.field(self._among([field.name for field in type], step, column.name, at))
                sql, type = f"{sql}.{quoted(inner.name)}", inner.type
            else:
                shown = f"[{step}]" if isinstance(step, int) else f".{step.text}"
                self._refuse("EvaluatorBindingDoesNotExist", f"{column.name} is {type}, and has no {shown}", at)
        return Value(sql, kind_of(type))

    def _among(self, names: Sequence[str], name: tree.Name, where: str, at: int) -> int:
        """Return the index of the name that *name* refers to in *names*."""
        found = [place for place, known in enumerate(names) if _same(name, known)]
        if len(found) > 1:
            found = [place for place in found if names[place] == name.text] or found
        if len(found) > 1:
            several = ", ".join(f'"{names[place]}"' for place in found)
            self._refuse("AmbiguousFieldName", f"{name.text} may be {several}: quote the one you mean", at)
        if not found:
            close = difflib.get_close_matches(name.text, names, 1)
            known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            meant = f"did you mean {close[0]}?" if close else f"there is {known}"
            self._refuse("EvaluatorBindingDoesNotExist", f"{where} has no column {name.text}: {meant}", at)
        return found[0]

    def _refuse(self, code: str, reason: str, at: int) -> NoReturn:
        raise SelectError(code, reason, self._sql, at)


def _same(name: tree.Name, known: str, quoted: bool = False) -> bool:
    return name.text == known or (not name.quoted and not quoted and name.text.lower() == known.lower())


def of_variant(record: str, steps: Sequence[tree.Step]) -> str:
    """Return the value at *steps* in a variant: by exact name, or else, if the name is not quoted, in any case."""
    if not steps:
        return record
    exact = _exact(record, steps)
    if all(isinstance(step, int) or step.quoted for step in steps):
        return exact
    found = record
    for step in steps:
        if isinstance(step, int) or step.quoted:
            found = _exact(found, [step])
        else:
            entries = f"map_entries(try_cast({found} AS MAP<STRING, VARIANT>))"
            found = f"try_element_at(filter({entries}, e -> lower(e.key) = {of_text(step.text.lower())}), 1).value"
    return f"coalesce({exact}, {found})"


def _exact(record: str, steps: Sequence[tree.Step]) -> str:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif '"' in step.text or "?" in step.text or not step.text:
            # Spark's paths cannot express these.
            record = record if path == "$" else f"variant_get({record}, {of_text(path)})"
            record = f"try_element_at(try_cast({record} AS MAP<STRING, VARIANT>), {of_text(step.text)})"
            path = "$"
        else:
            path += f"[{json.dumps(step.text, ensure_ascii=False)}]" if "\\" not in step.text else f"['{step.text}']"
    return record if path == "$" else f"variant_get({record}, {of_text(path)})"
