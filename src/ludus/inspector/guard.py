"""Who may ask: browsers that mean this server, from pages that it sent itself, with the token where one is needed.

A page of another site can make a browser send requests here, and a name of its own lead to 127.0.0.1 (DNS rebinding).
So a request has to name this machine in `Host`, `Origin` has to be this server, and an order has to be JSON.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "ludus_inspect"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses strangers before anything is read; `token` is None where only this machine can connect."""

    def __init__(self, app: ASGIApp, *, host: str, token: str | None) -> None:
        self.app, self.host, self.token = app, host.lower(), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self.refusal(scope["method"], headers)
        fresh = self.token is not None and self._same(_asked(scope))
        if not refusal and self.token is not None and not fresh and not self._same(_cookie(headers)):
            refusal = "this server asks for a token: open the address that `ludus inspect` printed"
        if refusal:
            await PlainTextResponse(refusal, 403, headers={"X-Content-Type-Options": "nosniff"})(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    out.setdefault(name, value)
                if fresh:
                    out.append("Set-Cookie", f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        await self.app(scope, receive, guarded)

    def refusal(self, method: str, headers: Headers) -> str:
        """Why a request is refused whatever its token; '' if it is not."""
        host = headers.get("host", "")
        if not self._known(_name(host)):
            return "the Host header names another machine"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return "the Origin is another page"
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return "the request comes from another site"
        if method not in ("GET", "HEAD") and headers.get("content-type", "").partition(";")[0] != "application/json":
            return "orders have to be JSON"
        return ""

    def _known(self, name: str) -> bool:
        if name in LOOPBACK or name == self.host:
            return True
        if self.host in LOOPBACK:
            return False
        return _is_address(name) or name in (socket.gethostname().lower(), socket.getfqdn().lower())

    def _same(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())


def _asked(scope: Scope) -> str:
    return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("token", [])), "")


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
