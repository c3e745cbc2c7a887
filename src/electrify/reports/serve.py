"""A page on this machine to try texts in: `electrify inspect MODEL --serve`.

What is typed is only ever data: requests are bounded JSON, answers are JSON that the page shows as
text, and the page may load nothing but its own three files. A Host header that is not this machine
is refused, so that no web site can reach the page through a name it points here (DNS rebinding).
"""

import json
import socket
import socketserver
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from electrify.errors import UserError
from electrify.reports.heat import as_json, corrupt_text, detect
from electrify.reports.page import asset
from electrify.reports.pair import LoadedPair
from electrify.reports.spelling import encodable
from electrify.tokens.show import visible

LONGEST_TEXT = 2_000
LONGEST_BODY = 16 * 1024
RATE = 0.15  # of the tokens that the generator fills, as in pre-training
REQUEST_SECONDS = 10  # that a request may take to arrive
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE_FILES = {
    "/": ("inspector.html", "text/html"),
    "/inspector.css": ("inspector.css", "text/css"),
    "/heat.css": ("heat.css", "text/css"),
    "/inspector.js": ("inspector.js", "text/javascript"),
}


class Inspection(NamedTuple):
    """What the page asks."""

    text: str
    corrupt: bool = False
    seed: int = 0


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Inspector(ThreadingHTTPServer):
    """The server with its model; one question at a time is computed."""

    def __init__(self, pair: LoadedPair, text: str, host: str, port: int) -> None:
        self.pair, self.text, self.asking = pair, text, Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.only_here = is_loopback(host)
        self.names = {"localhost", "127.0.0.1", "::1", host.lower()}
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Without asking the network what this machine is called, which can take long."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever leaves in the middle of a request is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def knows(self, host: str) -> bool:
        """Whether a Host header is this machine's, and no name that somebody pointed at it."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.names or (not self.only_here and _address(name) is not None)

    def answer(self, question: Inspection) -> dict[str, Any]:
        """What the model says."""
        with self.asking:
            tokens = (
                corrupt_text(self.pair, question.text, RATE, question.seed)
                if question.corrupt
                else detect(self.pair, question.text)
            )
            return as_json(self.pair, question.text, tokens)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Inspector
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS

    def respond(self) -> None:
        """Answer a request of any method."""
        try:
            self._send(HTTPStatus.OK, *self._found())
        except Refused as refused:
            self.send_error(refused.status, refused.why)
        except UserError as error:
            self.send_error(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error.what}: {error.got}")
        except (TimeoutError, ConnectionError):  # the reader has left
            self.close_connection = True
        except Exception:  # one bad request must not end the page
            traceback.print_exc()
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the model failed; see the terminal")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = respond

    def _found(self) -> tuple[str, bytes]:
        """The kind and content of what is asked for."""
        if not self.server.knows(self.headers.get("Host", "")):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this page has another address")
        path = urlsplit(self.path).path
        method = {**dict.fromkeys(PAGE_FILES, "GET"), "/model": "GET", "/tokens": "POST"}.get(path)
        if method is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        if self.command != method:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {method} is answered here")
        if path == "/tokens":
            return "application/json", _json(self.server.answer(question(self._body())))
        if path == "/model":
            return "application/json", _json(self._model())
        name, kind = PAGE_FILES[path]
        return kind, asset(name).encode()

    def _model(self) -> dict[str, Any]:
        pair = self.server.pair
        return {
            "model": visible(pair.name),
            "text": encodable(self.server.text)[:LONGEST_TEXT],
            "notes": pair.notes,
            "corrupts": pair.generator is not None,
        }

    def _body(self) -> bytes:
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "say the length of the request")
        if int(length) > LONGEST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LONGEST_BODY:,} bytes")
        return self.rfile.read(int(length))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """An error as JSON; what may be left of the request is not read."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, "application/json", _json({"error": message or status.phrase}))

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        """What the Server header says: no versions."""
        return "electrify"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests: they hold what people type."""


def question(body: bytes) -> Inspection:
    """A question from a request, or why it is none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is not JSON") from None
    kinds = {"text": str, "corrupt": bool, "seed": int}
    if not isinstance(asked, dict) or "text" not in asked or asked.keys() - kinds.keys():
        raise Refused(HTTPStatus.BAD_REQUEST, f"send an object of {', '.join(kinds)}")
    for name, value in asked.items():
        if type(value) is not kinds[name]:  # True is an int
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be {kinds[name].__name__}")
    if len(asked["text"]) > LONGEST_TEXT:
        why = f"at most {LONGEST_TEXT:,} characters"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
    return Inspection(**asked)


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def start(pair: LoadedPair, text: str, host: str, port: int) -> Inspector:
    """A server that listens but does not answer yet."""
    try:
        return Inspector(pair, text, host, port)
    except (OSError, OverflowError) as error:
        raise UserError(
            "the page cannot be served there",
            got=f"{host}, port {port}: {error}",
            fix="give another --port, or --host 127.0.0.1",
        ) from error


def serve(pair: LoadedPair, text: str, host: str, port: int) -> None:
    """Serve the page until Ctrl-C."""
    with start(pair, text, host, port) as server:
        if not server.only_here:
            print(
                f"warning: whoever can reach {host} on the network can use this page, without a "
                "password; leave out --host to keep it to this machine",
                file=sys.stderr,
            )
        for note in pair.notes:
            print(f"note: {visible(note)}", file=sys.stderr)
        print(f"{server.url}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nended", file=sys.stderr)
