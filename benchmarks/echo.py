"""The service's framework and server alone: one route that returns a JSON body."""

import socket
from typing import Any

import uvicorn
from litestar import Litestar, post
from litestar.params import JSONBody


@post("/echo", status_code=201)
async def echo(data: JSONBody[dict[str, Any]]) -> dict[str, Any]:
    """Return the body."""
    return data


def main() -> None:
    """Serve on a free port, and print it."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    application = Litestar([echo], openapi_config=None, logging_config=None)
    config = uvicorn.Config(
        application, http="httptools", loop="uvloop", ws="none", lifespan="off", log_level="warning", access_log=False
    )
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
