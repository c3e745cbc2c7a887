"""`electrify inspect --serve` over real HTTP, and in a real browser."""

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection
from threading import Thread

import pytest
from tests.reports.chromium import chromium, needs_chromium
from tests.reports.odd_texts import ODD_TEXTS

from electrify.errors import UserError
from electrify.reports import serve as serving
from electrify.reports.heat import as_json, corrupt_text, detect
from electrify.reports.inspection import page as static_page
from electrify.reports.judged import Judged
from electrify.reports.pair import load_pair
from electrify.reports.serve import (
    LONGEST_BODY,
    LONGEST_TEXT,
    PAGE_FILES,
    Inspector,
    is_loopback,
    serve,
    start,
)

TEXT = "Kata lodi, mifu nuta peso radi kaso lota."


@pytest.fixture(scope="module")
def pair(exports):
    return load_pair(str(exports["electra"]))


@pytest.fixture(scope="module")
def server(pair):
    with start([pair], TEXT, "127.0.0.1", 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server, method: str, path: str, body: object = None, **headers: str):
    """Send a request, and return the response and its JSON."""
    connection = HTTPConnection(*server.server_address[:2], timeout=20)
    if isinstance(body, dict):
        body = json.dumps(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        names.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, names)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response, json.loads(content) if is_json and content else content


def test_the_page_loads_its_own_files_only(server):
    for path, (_, kind) in PAGE_FILES.items():
        response, content = ask(server, "GET", path)
        assert (response.status, response.headers.get_content_type()) == (200, kind)
        addresses = re.findall(rb"(?:src|href)=\"([^\"]+)\"|url\(([^)]+)\)", content)
        assert {first or second for first, second in addresses} <= {
            *(name.encode() for name in PAGE_FILES),
            b"data:,",
        }
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write", content)
    page = ask(server, "GET", "/")[1]
    assert not re.search(rb"<script(?![^>]*src=)|<style| on\w+=", page)


def test_every_response_forbids_what_the_page_does_not_need(server):
    for method, path in [("GET", "/"), ("GET", "/nothing"), ("POST", "/tokens"), ("PUT", "/")]:
        headers = ask(server, method, path)[0].headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_the_page_gets_a_description_of_the_model(server):
    _, about = ask(server, "GET", "/model")
    assert about["text"] == TEXT
    assert about["corrupts"]
    assert [model["model"].endswith("electra") for model in about["models"]] == [True]


def plain_json(pair, text: str, tokens: list) -> dict:
    return without_rates(json.loads(json.dumps(as_json(pair, text, tokens))))


def without_rates(answer: dict) -> dict:
    """Return an answer without what only the page shows."""
    return {n: v for n, v in answer.items() if n not in ("said", "threshold", "false_alarms")}


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_responses_are_the_predictions_of_the_model(name, server, pair):
    text = ODD_TEXTS[name]
    response, answer = ask(server, "POST", "/tokens", {"text": text})
    assert response.status == 200
    assert without_rates(answer) == plain_json(pair, text, detect(pair, text))
    _, answer = ask(server, "POST", "/tokens", {"text": text, "corrupt": True, "seed": 4})
    assert without_rates(answer) == plain_json(pair, text, corrupt_text(pair, text, 0.15, 4))
    assert not re.search(r"[\x00-\x1f\u202e]", "".join(token["says"] for token in answer["tokens"]))


REFUSED = {
    "no such path": ("GET", "/etc/passwd", None, {}, 404),
    "path upwards": ("GET", "/../../etc/passwd", None, {}, 404),
    "an asset that is not served": ("GET", "/page.html", None, {}, 404),
    "get of a request": ("GET", "/tokens", None, {}, 405),
    "post to the page": ("POST", "/", {"text": "a"}, {}, 405),
    "put": ("PUT", "/tokens", {"text": "a"}, {}, 405),
    "preflight": ("OPTIONS", "/tokens", None, {"Origin": "https://elsewhere.example"}, 405),
    "head": ("HEAD", "/", None, {}, 405),
    "no such method": ("BREW", "/", None, {}, 501),
    "form": ("POST", "/tokens", "text=a", {"Content_Type": "text/plain"}, 415),
    "invalid JSON": ("POST", "/tokens", "{text", {}, 400),
    "invalid UTF-8": ("POST", "/tokens", b'{"text": "\xff"}', {}, 400),
    "deep JSON": ("POST", "/tokens", "[" * 9000, {}, 400),
    "no object": ("POST", "/tokens", "[1]", {}, 400),
    "no text": ("POST", "/tokens", {"seed": 1}, {}, 400),
    "text that is not a string": ("POST", "/tokens", {"text": 5}, {}, 400),
    "seed that is not an integer": ("POST", "/tokens", {"text": "a", "seed": True}, {}, 400),
    "unknown field": ("POST", "/tokens", {"text": "a", "rate": 1}, {}, 400),
    "no such model": ("POST", "/tokens", {"text": "a", "model": 1}, {}, 400),
    "negative model": ("POST", "/tokens", {"text": "a", "model": -1}, {}, 400),
    "threshold as text": ("POST", "/tokens", {"text": "a", "threshold": "0.5"}, {}, 400),
    "threshold too high": ("POST", "/tokens", {"text": "a", "threshold": 1.01}, {}, 400),
    "threshold that is not a number": ("POST", "/tokens", '{"text":"a","threshold":NaN}', {}, 400),
    "text too long": ("POST", "/tokens", {"text": "a" * (LONGEST_TEXT + 1)}, {}, 413),
    "body too long": ("POST", "/tokens", "a" * (LONGEST_BODY + 1), {}, 413),
    "invalid length": ("POST", "/tokens", "{}", {"Content_Length": "-1"}, 411),
    "another host": ("GET", "/", None, {"Host": "elsewhere.example"}, 421),
    "request to another host": ("POST", "/tokens", {"text": "a"}, {"Host": "evil.test:80"}, 421),
    "another address": ("GET", "/model", None, {"Host": "192.168.1.5"}, 421),
    "no host at all": ("GET", "/", None, {"Host": ""}, 421),
    "invalid host": ("GET", "/", None, {"Host": "[::1"}, 421),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_refused_in_json(name, server):
    method, path, body, headers, status = REFUSED[name]
    response, answer = ask(server, method, path, body, **headers)
    assert response.status == status
    assert response.headers.get_content_type() == "application/json"
    if method != "HEAD":
        assert set(answer) == {"error"}
        assert answer["error"]
    response, _ = ask(server, "GET", "/model")  # and the server is still running
    assert response.status == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "LOCALHOST:1", "[::1]:80"])
def test_names_of_this_machine_are_known(host, server):
    assert ask(server, "GET", "/model", Host=host)[0].status == 200


def test_the_longest_text_is_answered(server):
    response, answer = ask(server, "POST", "/tokens", {"text": "🙂 " * (LONGEST_TEXT // 2)})
    assert response.status == 200
    assert any("the text is truncated" in note for note in answer["notes"])


def test_garbage_and_silence_do_not_stop_the_server(server, capfd):
    for sent in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET",
        b"POST /tokens HTTP/1.1\r\nContent-Length: 5\r\n",
    ):
        with socket.create_connection(server.server_address[:2]) as wire:
            reset = struct.pack("ii", 1, 0)  # reset the connection instead of closing it
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            wire.sendall(sent)
    assert ask(server, "GET", "/model")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_concurrent_requests_get_their_own_responses(server, pair):
    texts = [f"kata {word} lodi" for word in ("mifu", "nuta", "peso", "radi") * 3]
    got: dict[int, list] = {}

    def one(number: int) -> None:
        got[number] = ask(server, "POST", "/tokens", {"text": texts[number]})[1]["tokens"]

    threads = [Thread(target=one, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, text in enumerate(texts):
        assert "".join(token["before"] + token["text"] for token in got[number]) == text


def test_a_failing_model_is_an_error_and_does_not_stop_the_server(server, monkeypatch, capfd):
    def fail(*arguments):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("electrify.reports.judged.detect", fail)
    response, answer = ask(server, "POST", "/tokens", {"text": "a"})
    assert response.status == 500
    assert "secret detail" not in str(answer)
    assert "secret detail" in capfd.readouterr().err


def test_a_model_without_generator_is_reported(pair):
    with start([pair._replace(generator=None, notes=("alone",))], "", "127.0.0.1", 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert not ask(server, "GET", "/model")[1]["corrupts"]
        response, answer = ask(server, "POST", "/tokens", {"text": TEXT, "corrupt": True})
        assert response.status == 422
        assert "cannot corrupt" in answer["error"]
        server.shutdown()


def test_other_hosts_accept_addresses_but_no_names(pair):
    with start([pair], "", "0.0.0.0", 0) as server:
        assert not server.loopback
        assert server.knows("192.168.1.5:8000")
        assert not server.knows("rebound.example")
    assert is_loopback("127.0.0.8")
    assert is_loopback("::1")
    assert not is_loopback("example.org")


def test_a_port_in_use_is_reported(pair, server):
    with pytest.raises(UserError, match="cannot serve the page"):
        start([pair], "", "127.0.0.1", server.server_address[1])
    with pytest.raises(UserError, match="cannot serve the page"):
        start([pair], "", "no.such.host.invalid", 0)


def test_the_command_prints_its_address_and_ends_by_ctrl_c(exports):
    # A suite that runs in the background of a shell ignores Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "electrify", "inspect", str(exports["electra"]), "--serve"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        port = int(re.match(r"http://127.0.0.1:(\d+)/  \(press Ctrl-C to stop\)", line)[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/model")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors == "\nstopped\n"


@pytest.mark.parametrize(
    "length", ["9" * 5_000, "1" * 11, "0" * 5_000 + "1", str(LONGEST_BODY + 1)]
)
def test_a_huge_content_length_is_refused(length, server):
    response, answer = ask(server, "POST", "/tokens", b"{}", Content_Length=length)
    assert response.status == 413
    assert answer["error"].startswith("at most")


BODY = b"POST /tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("dripped", [BODY + b"Content-Length: 9000\r\n\r\n", BODY, b""])
def test_a_request_that_drips_is_cut_off(dripped, server, monkeypatch):
    """Every byte arrives in time, but the request never ends."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.3)
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(dripped)
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - began < 10:
                connection.sendall(b"a")
                time.sleep(0.02)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_serving_other_machines_prints_a_warning(host, pair, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Inspector, "serve_forever", interrupted)
    serve([pair], "", host, 0)
    captured = capsys.readouterr()
    assert captured.out.startswith(f"http://{host}:")
    assert ("warning: anyone who can reach" in captured.err) == (host == "0.0.0.0")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as open_tab:
        yield open_tab


WIDE, PHONE = (1100, 900), (360, 740)
QUIET = "!document.querySelector('.card.busy')"
SHOWN = "document.querySelector('.heat').textContent"


def fresh(browser, server, size=WIDE, dark: bool = False):
    """Open the page and wait for its first response."""
    tab = browser()
    tab.look(*size, dark=dark)
    tab.open(server.url)
    tab.wait("document.querySelector('.token')")
    return tab


def retype(tab, text: str) -> None:
    """Replace the text as a user does, and wait for the response."""
    tab.run("document.querySelector('#text').focus(), document.querySelector('#text').select()")
    tab.run("document.querySelector('.heat').replaceChildren('waiting')")
    tab.type(text)
    tab.wait(f"{SHOWN} !== 'waiting' && {QUIET}")


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_type_corrupt_and_hover(browser, server):
    tab = fresh(browser, server)
    assert tab.run(SHOWN) == TEXT
    retype(tab, "mifu KATA lodi kaso")
    assert tab.run(SHOWN) == "mifu KATA lodi kaso"
    assert "suspected" in tab.run("document.querySelector('.status').textContent")

    tab.run("document.querySelector('#corrupt').focus()")
    seen = set()
    for _ in range(8):  # the first press corrupts, the others draw new samples
        tab.press("Enter")
        tab.wait(QUIET)
        seen.add(tab.run(SHOWN))
        if tab.run("!!document.querySelector('.token.caught, .token.missed')"):
            break
    assert tab.run("document.querySelector('#corrupt').textContent") == "Another sample"
    numbers = tab.run("[...document.querySelectorAll('.counts dd')].map(e => +e.textContent)")
    replaced = tab.run("document.querySelectorAll('.token.caught, .token.missed').length")
    assert numbers[0] + numbers[1] == replaced > 0
    assert tab.run("document.querySelectorAll('.notable li').length") == replaced + numbers[2]

    selector = ".token.caught, .token.missed"
    tip = f"getComputedStyle(document.querySelector('{selector}'), '::before')"
    assert tab.run(f"{tip}.display") == "none"
    tab.hover(selector)
    tab.wait(f"{tip}.display === 'block'")
    assert "was “" in tab.run(f"{tip}.content")

    tab.run("document.querySelector('#back').click()")
    tab.wait(f"{SHOWN} === 'mifu KATA lodi kaso' && {QUIET}")
    assert tab.console == []
    assert all(url.startswith(server.url) for url in tab.requests)


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_by_keyboard_alone(browser, server):
    tab = fresh(browser, server)
    tab.run("document.querySelector('#seed').focus()")
    tab.press("Tab")
    focused = "[...document.querySelectorAll('.token')].indexOf(document.activeElement)"
    assert tab.run(focused) == 0
    tab.press("ArrowRight")
    assert tab.run(focused) == 1
    tip = "getComputedStyle(document.activeElement, '::before')"
    assert tab.run(f"{tip}.display") == "block"
    tab.press("End")
    assert tab.run(focused) == tab.run("document.querySelectorAll('.token').length - 1")
    tab.press("Home")
    tab.press("ArrowLeft")
    assert tab.run(focused) == 0
    assert tab.console == []


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_in_a_browser_everything_fits_and_can_be_read(size, dark, browser, server):
    tab = fresh(browser, server, size, dark)
    for name in ("long word", "many subwords", "right to left", "emoji", "layout"):
        retype(tab, ODD_TEXTS[name])
        tab.run("document.querySelector('.token')?.focus()")
        assert tab.run("document.documentElement.scrollWidth") <= size[0], name
    light = tab.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] > 128")
    assert light is not dark
    retype(tab, TEXT)
    assert min(tab.run(CONTRASTS)) >= 4.5
    assert tab.console == []


# The contrast of every text with its background by WCAG 2.
CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (rgb) => rgb.map((c) => c / 255).map((c) =>
    c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const painted = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const behind = (element) => element
    ? [...behind(element.parentElement), getComputedStyle(element).backgroundColor] : ["white"];
  const all = [...document.querySelectorAll("h1, h2, p, label, .token, button:enabled, dt, dd, li")];
  const written = all.filter((e) => e.textContent.trim() && e.checkVisibility());
  return written.map((element) => {
    const colours = behind(element);
    const [a, b] = [painted(colours), painted([...colours, getComputedStyle(element).color])];
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  });
})()"""


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_odd_texts_are_only_text(browser, server):
    tab = fresh(browser, server)
    title = tab.run("document.title")
    elements = "document.querySelectorAll('script, img, style, iframe, [onmouseover]').length"
    before = tab.run(elements)
    for name in ("script", "attribute", "template", "special", "controls", "escape", "override"):
        retype(tab, ODD_TEXTS[name])
        tab.run("document.querySelector('#corrupt').click()")
        tab.wait(QUIET)
        assert tab.run(elements) == before, name
        assert tab.run("document.title") == title
    retype(tab, "")
    assert tab.run(SHOWN) == "Type a text to see predictions."
    assert tab.run("document.querySelector('#corrupt').disabled")
    assert tab.console == []


@needs_chromium
@pytest.mark.slow
def test_in_a_browser_the_end_of_the_server_is_reported(browser, server):
    tab = fresh(browser, server)
    speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.send("Network.emulateNetworkConditions", offline=True, **speed)
    # A request may still get through: going offline takes effect with a delay.
    press = "document.querySelector('#corrupt').click()"
    tab.wait(f"{QUIET} && ({press}, !document.querySelector('#trouble').hidden)")
    assert "The server has stopped" in tab.run("document.querySelector('#trouble').textContent")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_in_a_browser_the_written_page_stands_alone(size, browser, pair, tmp_path):
    text = " ".join([TEXT, ODD_TEXTS["script"], ODD_TEXTS["right to left"]])
    path = tmp_path / "page.html"
    path.write_text(
        static_page([Judged(pair, text, corrupt_text(pair, text, 0.4, 1))]), encoding="utf-8"
    )
    tab = browser()
    tab.look(*size)
    tab.open(path.as_uri())
    tab.hover(".token.caught, .token.missed")
    tip = "getComputedStyle(document.querySelector('.token:hover'), '::before')"
    tab.wait("document.querySelector('.token:hover')")
    assert tab.run(f"{tip}.display") == "block"
    assert tab.run("document.documentElement.scrollWidth") <= size[0]
    assert min(tab.run(CONTRASTS)) >= 4.5
    assert tab.console == []
    assert tab.requests == [path.as_uri()]
