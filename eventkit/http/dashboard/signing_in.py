"""Signing in with a key, and what is shown to whoever may not see what they have asked for."""

from typing import Any
from urllib.parse import urlencode

from litestar import Request, Response, get, post
from litestar.response import Redirect

from ..problems import Refusal, problem_of
from . import access
from .viewing import base_of, render


def excuse(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """What went wrong, as a page; whoever has not said who they are is asked first."""
    problem, _ = problem_of(error)
    if problem.status == 401 and request.method == "GET":
        return Redirect(f"{base_of(request)}/dashboard/login?{urlencode({'next': _address(request)})}", status_code=303)
    return render(request, "problem", "Not possible", problem.status, problem=problem)


@get("/dashboard/login")
async def login_page(request: Request[Any, Any, Any]) -> Response[Any]:
    """The form that asks for a key."""
    return render(request, "login", "Sign in", next=request.query_params.get("next", "/"), failed=None)


@post("/dashboard/login")
async def login(request: Request[Any, Any, Any]) -> Response[Any]:
    """Begin a session, if the key lets its holder see something."""
    form = await request.form()
    access.check_form(request, form.get("csrf"))
    key, wanted = str(form.get("key", "")).strip(), str(form.get("next", "/"))
    answer = Redirect(_inside(request, wanted), status_code=303)
    if access.guard_of(request) is not None:
        try:
            session = await access.sign_in(request, key)
        except Refusal as error:
            return render(request, "login", "Sign in", 401, next=wanted, failed=str(error))
        answer.set_cookie(access.cookie(request, access.COOKIE, session))
    return answer


@post("/dashboard/logout")
async def logout(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the session."""
    access.check_form(request, (await request.form()).get("csrf"))
    await access.sign_out(request)
    answer = Redirect(_inside(request, "/dashboard/login"), status_code=303)
    answer.set_cookie(access.cookie(request, access.COOKIE, ""))
    return answer


def _address(request: Request[Any, Any, Any]) -> str:
    query = request.scope["query_string"].decode("latin-1")
    return request.scope["path"] + (f"?{query}" if query else "")


def _inside(request: Request[Any, Any, Any], path: str) -> str:
    """*path*, if it is one of ours; whoever has written the address must not send anybody elsewhere."""
    ours = path == "/" or path.startswith(("/?", "/dashboard/"))
    return base_of(request) + (path if ours and path.isprintable() and "\\" not in path else "/")


routes = [login_page, login, logout]
