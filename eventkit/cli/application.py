"""Finding an application: ``MODULE:APP``, as a developer's modules have it."""

import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from .refusals import Refused

if TYPE_CHECKING:
    from eventkit.app import Application


def load(name: str) -> "Application":
    """The app of that name; modules are looked for in the present folder, too."""
    from eventkit.app import Application

    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise Refused(f"{name!r} names no app: write MODULE:APP, as in shop.tasks:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(found).items() if isinstance(value, Application)]
            there = f": there is {', '.join(apps)}" if apps else ", and no other app"
            raise Refused(f"{module_name} has no {attribute}{there}")
        found = getattr(found, part)
    if not isinstance(found, Application):
        raise Refused(f"{name} is no eventkit.App, but of type {type(found).__name__}")
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"there is no module {error.name!r} here: run it in your project's folder") from None
        raise Refused(_told(name, error)) from error
    except Exception as error:
        raise Refused(_told(name, error)) from error


def _told(name: str, error: Exception) -> str:
    """What went wrong in a module of somebody else's, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}, line {place.lineno}"
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    return f"{name} cannot be imported: {type(error).__name__}: {error} ({where})"
