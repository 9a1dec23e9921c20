"""Declaring tasks: the names that a developer's modules import.

::

    app = eventkit.App("sqlite:///shop.db")

    @app.task(queue="emails", retries=4)
    def send_email(to: str, subject: str = "Hello") -> int: ...

    send_email.enqueue(to="ann@example.com", delay=30)

Start reading at `application`; a worker reads `declarations`.
"""

from .application import App, Application, AsyncApp
from .context import AsyncTaskContext, Progress, TaskContext
from .protocols import AsyncTaskFunction, AsyncTaskHandle, TaskFunction, TaskHandle

__all__ = [
    "App",
    "Application",
    "AsyncApp",
    "AsyncTaskContext",
    "AsyncTaskFunction",
    "AsyncTaskHandle",
    "Progress",
    "TaskContext",
    "TaskFunction",
    "TaskHandle",
]
