"""What the protocols are spelt with."""

from typing import Any, TypeVar

from ..records import Task, TaskInfo

T = TypeVar("T")
P = TypeVar("P")
M_co = TypeVar("M_co", covariant=True)

KEEP: Any = ...
"""The default of a setting that is left as it is."""

NO_RESULT: Any = ...
"""The default of a result that there is none of; None would be one."""

# Where a method is named like the type, it could not be written in full below it.
Tasks = list[Task[P]]
TaskInfos = list[TaskInfo[P]]
Ids = list[int]
