"""A headless Chromium in which tests look at report pages, by its DevTools protocol."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
         "--remote-debugging-port=0", "--remote-allow-origins=*")  # fmt: skip
LONGEST_S = 60.0


class Tab:
    """One page of the browser."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.count, self.events = socket, 0, list[dict[str, Any]]()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of a command; events that arrive before it are kept."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=LONGEST_S))
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def run(self, expression: str) -> Any:
        """Value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + LONGEST_S
        while not self.run(expression):
            assert time.monotonic() < end, f"{expression}: never true"
            time.sleep(0.05)

    def open(self, path: Path, width: int = 1200, height: int = 900) -> None:
        """Load a file and wait until its charts are drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.body !== null && (document.body.dataset.state || '') !== ''")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a picture of the page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        """Print the page."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def complaints(self) -> list[str]:
        """Messages of the console, uncaught exceptions, and requests beyond the file itself."""
        self.run("0")
        found = []
        for event in self.events:
            kind, what = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(str(what["exceptionDetails"]))
            if kind == "Runtime.consoleAPICalled" and what["type"] != "debug":
                found.append(str(what["args"]))
            if kind == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(str(what["entry"]))
            if kind == "Network.requestWillBeSent":
                url = what["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:")):
                    found.append(f"request: {url[:100]}")
        return found


@contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """A tab of a new Chromium; skips the test where there is none.

    Args:
        folder: for the browser's own files.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        port = folder / "profile" / "DevToolsActivePort"
        end = time.monotonic() + LONGEST_S
        while not (port.exists() and port.read_text().count("\n")):
            assert process.poll() is None, "Chromium ended"
            assert time.monotonic() < end, "Chromium did not start"
            time.sleep(0.05)
        number = port.read_text().splitlines()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=10) as answer:
            page = next(each for each in json.load(answer) if each["type"] == "page")
        with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=20)
