"""A browser without scripts for tests of the dashboard: it follows links and sends the forms of pages."""

import html
import re
from typing import Any

import httpx
import pytest
from pages import fill
from services import Served

import eventkit
from eventkit.http import app


class Browser:
    """A client that follows links and sends forms without a script, with its cookies and headers."""

    def __init__(self, served: Served, base: str = "http://127.0.0.1") -> None:
        self._served = served
        self._base = base
        served.client.base_url = httpx.URL(base)

    def get(self, path: str, status: int = 200) -> str:
        """Return the page at *path*."""
        answer = self._served("GET", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def send(self, page: str, do: str, status: int = 303, **fields: Any) -> httpx.Response:
        """Send the form of *page* for *do*; *fields* are typed values, or select one of several forms."""
        for form in re.findall(r'<form method="post" action="/dashboard/act".*?</form>', page, re.DOTALL):
            hidden = {
                html.unescape(name): html.unescape(value)
                for name, value in re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', form, re.DOTALL)
            }
            typed = set(re.findall(r'<textarea.*?name="(\w+)"', form))
            if hidden["do"] == do and all(
                name in typed or hidden.get(name) == str(value) for name, value in fields.items()
            ):
                return self.post("/dashboard/act", hidden | fields, status)
        raise AssertionError(f"the page has no form for {do} with {fields}")

    def post(self, path: str, fields: dict[str, Any], status: int = 303, **headers: str) -> httpx.Response:
        """Send a form."""
        given = {"origin": self._base, "sec-fetch-site": "same-origin"} | headers
        answer = self._served("POST", path, data=fields, headers=given)
        assert answer.status_code == status, (path, fields, answer.status_code, answer.text)
        return answer


def token(served: Served) -> str:
    """Return the token of the dashboard's forms."""
    return str(served.client.cookies["eventkit_form"])


def entered(served: Served, **settings: Any) -> Browser:
    """Return a browser of another application on the same kit."""
    transport = httpx.ASGITransport(app(served.kit, **settings), raise_app_exceptions=False)
    served.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    return Browser(served)


@pytest.fixture
def filled(url: str) -> dict[str, Any]:
    """Return a database with rows of every kind."""
    with eventkit.connect(url) as kit:
        return fill(kit)


@pytest.fixture
def browser(filled: dict[str, Any], served: Served) -> Browser:
    """Return a browser of the service."""
    return Browser(served)
