"""A local page to try texts in: `electrify inspect MODEL --serve`.

User input is only ever data: requests are bounded JSON, responses are JSON that the page shows as
text, and the page may load only its own three files. Requests with the Host header of another
machine are refused, so that no web site can reach the page by DNS rebinding.
"""

import io
import json
import socket
import socketserver
import sys
import time
import traceback
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Lock
from types import NoneType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from electrify.errors import UserError, visible
from electrify.reports.heat import Token, as_json, counts_text, with_threshold
from electrify.reports.judged import Corruption, judge
from electrify.reports.page import asset
from electrify.reports.pair import LoadedPair
from electrify.reports.served import ServedModel, examples_for, rates_at, served_model
from electrify.reports.spelling import encodable
from electrify.reports.threshold import Threshold

LONGEST_TEXT = 2_000
LONGEST_BODY = 16 * 1024
LONGEST_NUMBER = 10  # digits of a Content-Length
REQUEST_SECONDS = 10.0  # timeout for receiving a request, and for sending a response
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
    """A request of the page."""

    text: str
    corrupt: bool = False
    seed: int = 0
    model: int = 0
    """Index of the model that is asked."""
    threshold: float | None = None
    """The probability from which tokens are flagged; None is the model's own threshold."""


REQUEST_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "corrupt": (bool,),
    "seed": (int,),
    "model": (int,),
    "threshold": (float, int, NoneType),
}


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Inspector(ThreadingHTTPServer):
    """The server with its models; it computes one request at a time."""

    def __init__(self, models: Sequence[ServedModel], text: str, host: str, port: int) -> None:
        self.models, self.text, self.lock = models, text, Lock()
        self.pairs = [model.pair for model in models]
        self.examples = examples_for(models)
        self.tokens = lru_cache(16)(self._tokens)  # moving the threshold needs no model
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.loopback = is_loopback(host)
        self.names = {"localhost", "127.0.0.1", "::1", host.lower()}
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Bind without looking up the host name, which can be slow."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during a request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this machine, not a domain that points at it."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.names or (not self.loopback and _address(name) is not None)

    def answer(self, request: Inspection) -> dict[str, Any]:
        """Return a model's predictions for a request, and its error rates at the threshold."""
        if not 0 <= request.model < len(self.models):
            reason = f"model must be between 0 and {len(self.models) - 1}"
            raise Refused(HTTPStatus.BAD_REQUEST, reason)
        model = self.models[request.model]
        threshold = model.pair.threshold
        if request.threshold is not None:
            threshold = Threshold(request.threshold, chosen=True)
        with self.lock:
            judged = self.tokens(request.model, request.text, request.corrupt, request.seed)
            tokens = with_threshold(judged, threshold)
            value = threshold.of([token.probability for token in tokens])
            return {
                **as_json(model.pair, request.text, tokens),
                "said": f"{counts_text(tokens)}; {threshold.rule}",
                "threshold": value,
                "false_alarms": rates_at(model, threshold, value),
            }

    def _tokens(self, model: int, text: str, corrupt: bool, seed: int) -> list[Token]:
        return judge(self.pairs, model, text, Corruption(seed=seed) if corrupt else None)


class _Incoming(io.RawIOBase):
    """Reads from a socket until a deadline, however slowly the bytes arrive."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.deadline = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the request did not arrive in time")
        self.connection.settimeout(remaining)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """Handles one connection."""

    server: Inspector
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Read requests with a deadline."""
        super().setup()
        self.incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self.incoming)

    def handle_one_request(self) -> None:
        """Allow each request `REQUEST_SECONDS` to arrive."""
        self.incoming.deadline = time.monotonic() + REQUEST_SECONDS
        super().handle_one_request()

    def respond(self) -> None:
        """Respond to a request of any method."""
        try:
            self._send(HTTPStatus.OK, *self._content())
        except Refused as refused:
            self.send_error(refused.status, refused.reason)
        except UserError as error:
            self.send_error(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error.what}: {error.got}")
        except (TimeoutError, ConnectionError):  # the client has disconnected
            self.close_connection = True
        except Exception:  # one bad request must not stop the server
            traceback.print_exc()
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the model failed; see the terminal")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = respond

    def _content(self) -> tuple[str, bytes]:
        """Return the content type and the content of the response."""
        if not self.server.knows(self.headers.get("Host", "")):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this host name is not served here")
        path = urlsplit(self.path).path
        method = {**dict.fromkeys(PAGE_FILES, "GET"), "/model": "GET", "/tokens": "POST"}.get(path)
        if method is None:
            raise Refused(HTTPStatus.NOT_FOUND, "not found")
        if self.command != method:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {method} is allowed here")
        if path == "/tokens":
            return "application/json", _json(self.server.answer(parse_request(self._body())))
        if path == "/model":
            return "application/json", _json(self._model())
        name, content_type = PAGE_FILES[path]
        return content_type, asset(name).encode()

    def _model(self) -> dict[str, Any]:
        pairs = self.server.pairs
        return {
            "models": [{"model": visible(pair.name), "notes": pair.notes} for pair in pairs],
            "text": encodable(self.server.text)[:LONGEST_TEXT],
            "corrupts": any(pair.generator is not None for pair in pairs),
            "examples": [example._asdict() for example in self.server.examples],
        }

    def _body(self) -> bytes:
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length header")
        if len(length) > LONGEST_NUMBER or int(length) > LONGEST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LONGEST_BODY:,} bytes")
        return self.rfile.read(int(length))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error as JSON, without reading the rest of the request."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, "application/json", _json({"error": message or status.phrase}))

    def _send(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        """Return the Server header, without version numbers."""
        return "electrify"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests contain what users type."""


def parse_request(body: bytes) -> Inspection:
    """Parse the body of a request, or raise `Refused`."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the request is not valid JSON") from None
    types = REQUEST_TYPES
    if not isinstance(fields, dict) or "text" not in fields or fields.keys() - types.keys():
        raise Refused(HTTPStatus.BAD_REQUEST, f"send an object with {', '.join(types)}")
    for name, value in fields.items():
        if type(value) not in types[name]:  # isinstance(True, int) holds
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be {types[name][0].__name__}")
    threshold = fields.get("threshold")
    if threshold is not None and not 0 <= threshold <= 1:  # NaN is not
        raise Refused(HTTPStatus.BAD_REQUEST, "threshold must be between 0 and 1")
    if len(fields["text"]) > LONGEST_TEXT:
        reason = f"at most {LONGEST_TEXT:,} characters"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    return Inspection(**fields)


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def start(pairs: Sequence[LoadedPair], text: str, host: str, port: int) -> Inspector:
    """Return a server that listens but does not respond yet."""
    models = [served_model(pair) for pair in pairs]
    try:
        return Inspector(models, text, host, port)
    except (OSError, OverflowError) as error:
        raise UserError(
            "cannot serve the page at this address",
            got=f"{host}, port {port}: {error}",
            fix="use another --port, or --host 127.0.0.1",
        ) from error


def serve(pairs: Sequence[LoadedPair], text: str, host: str, port: int) -> None:
    """Serve the page until Ctrl-C."""
    with start(pairs, text, host, port) as server:
        if not server.loopback:
            print(
                f"warning: anyone who can reach {host} on the network can use this page without a "
                "password; leave out --host to restrict it to this machine",
                file=sys.stderr,
            )
        for note in dict.fromkeys(note for pair in pairs for note in pair.notes):
            print(f"note: {visible(note)}", file=sys.stderr)
        print(f"{server.url}  (press Ctrl-C to stop)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
