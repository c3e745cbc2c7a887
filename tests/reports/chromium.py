"""A headless Chromium for tests, driven over a pipe with the DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="Chromium is not installed: apt-get install chromium"
)
SECONDS = 30


class Page:
    """A tab, with its console output and its requests."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events, self._read = commands, events, b""
        self._number, self._session = 0, ""
        self.console: list[str] = []
        """Errors and warnings of the page."""
        self.requests: list[str] = []
        """Every address it requested."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result; events in between are recorded."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (message := self._receive()).get("id") != self._number:
            self._record(message)
        assert "error" not in message, (method, message["error"])
        return message["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            data = os.read(self._events, 1 << 16)
            assert data, "Chromium has exited"
            self._read += data
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def _record(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.console.append(json.dumps(about["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        """Go to a page and wait until it is complete."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.run(f"!!({script})"):
            assert time.monotonic() < end, f"never true: {script}\n{self.console}"
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key such as Tab, Enter or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "Home": 36, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            about["text"] = "\r"
        self.send("Input.dispatchKeyEvent", type="keyDown", **about)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def hover(self, selector: str) -> None:
        """Move the mouse over the first box of an element."""
        script = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center"}});
            const box = element.getClientRects()[0];
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = self.run(script)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def look(self, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the screen and the preferred colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Save what is visible now."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def chromium(profile: Path) -> Iterator[Callable[[], Page]]:
    """Run a browser during the block, and yield a function that opens tabs."""
    assert PROGRAM
    read_by_it, commands = os.pipe()
    events, written_by_it = os.pipe()
    arguments = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
    ]

    def as_three_and_four() -> None:  # where Chromium looks for its pipe
        first, second = os.dup(read_by_it), os.dup(written_by_it)
        os.dup2(first, 3)
        os.dup2(second, 4)

    process = subprocess.Popen(
        [PROGRAM, *arguments],
        preexec_fn=as_three_and_four,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_by_it)
    os.close(written_by_it)
    try:
        yield lambda: Page(commands, events)
    finally:
        process.terminate()
        process.wait(SECONDS)
        os.close(commands)
        os.close(events)
