"""A headless Chromium, driven through a pair of pipes (the DevTools protocol): no port, no driver, no dependency."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE = 30.0
_OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
)
# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
_PLUG = (
    "import os, sys; r, w = map(int, sys.argv[1:3]); os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page. Stopped by its own process id at the end of a `with`."""

    def __init__(self, binary: str, profile: Path) -> None:
        self._binary = binary
        self._profile = profile

    def __enter__(self) -> Self:
        (theirs_in, ours_out), (ours_in, theirs_out) = _high_pipe(), _high_pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _PLUG,
                str(theirs_in),
                str(theirs_out),
                self._binary,
                *_OPTIONS,
                *sandbox,
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._in)
        os.close(self._out)
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Open a file in a window of this size and wait until it is shown, or a few seconds."""
        self.visit(path.resolve().as_uri(), width, height)

    def visit(self, address: str, width: int, height: int = 900) -> None:
        """Open an address, likewise."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.events.clear()
        self.call("Page.navigate", url=address)
        self._wait_for_load()

    def _wait_for_load(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read(deadline)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click(self, selector: str, *, loads: bool = False) -> None:
        """Click the first element that matches, with the mouse; if that loads a page, wait for it."""
        middle = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            f"return [r.x + r.width / 2, r.y + r.height / 2] }})(document.querySelector({json.dumps(selector)}))"
        )
        self.events.clear()
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": middle[0], "y": middle[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **where)
        if loads:
            self._wait_for_load()

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, loads: bool = False) -> None:
        """Press a key: Tab, Enter, ArrowDown; if that loads a page, wait for it."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "ArrowDown": (40, "")}[key]
        self.events.clear()
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **facts)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)
        if loads:
            self._wait_for_load()

    def picture(self, file: Path) -> None:
        """Save what the window shows as a PNG file."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def prefer(self, scheme: str) -> None:
        """Whether pages are shown to somebody who likes them light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"the page's script failed: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings in the console, and exceptions, since the page was opened."""
        said = []
        for event in self.events:
            values = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                said.append(json.dumps(values["exceptionDetails"]))
            if event["method"] == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
                said.append(json.dumps(values["args"]))
            if event["method"] == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                said.append(values["entry"]["text"])
        return said

    def requested(self) -> set[str]:
        """The kinds of addresses that the page asked for."""
        return {address.split(":", 1)[0] for address in self.addresses()}

    def addresses(self) -> set[str]:
        """The addresses that the page asked for."""
        asked = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return {event["params"]["request"]["url"] for event in asked}

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self, deadline: float) -> dict[str, Any]:
        """The next message; events are kept."""
        while b"\0" not in self._buffer:
            with selectors.DefaultSelector() as selector:
                selector.register(self._in, selectors.EVENT_READ)
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"Chromium did not answer within {_PATIENCE:g} seconds")
            chunk = os.read(self._in, 1 << 16)
            if not chunk:
                raise AssertionError(f"Chromium ended with code {self._process.wait(timeout=5)}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are well above 3 and 4, to be moved there without stepping on each other."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return read, write
