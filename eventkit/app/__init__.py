"""Declaring tasks: the names that a developer's modules import.

::

    app = eventkit.App("sqlite:///shop.db")

    @app.task(queue="emails", max_attempts=5)
    def send_email(to: str, subject: str = "Hello") -> int: ...

    send_email.options(delay=30).enqueue(to="ann@example.com")
"""

from .app import App, Application, AsyncApp
from .blueprint import AsyncBlueprint, Blueprint
from .task import (
    AsyncTaskContext,
    AsyncTaskFunction,
    AsyncTaskHandle,
    Progress,
    TaskCall,
    TaskContext,
    TaskFunction,
    TaskHandle,
)

__all__ = [
    "App",
    "Application",
    "AsyncApp",
    "AsyncBlueprint",
    "AsyncTaskContext",
    "AsyncTaskFunction",
    "AsyncTaskHandle",
    "Blueprint",
    "Progress",
    "TaskCall",
    "TaskContext",
    "TaskFunction",
    "TaskHandle",
]
