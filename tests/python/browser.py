"""A headless Chromium, driven through its DevTools pipe: no driver and no network are needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One page. Messages are JSON objects that end with a zero byte."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._next = 0
        self.events: list[dict[str, Any]] = []
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Accessibility", "Log"):
            self.send(f"{domain}.enable")

    _session = None

    def _send(self, method: str, parameters: dict[str, Any] | None = None, seconds: float = 60) -> Any:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters or {}}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    send = _send

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self._read, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError("chromium does not answer")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, url: str) -> None:
        self.send("Page.navigate", {"url": url})
        self.wait("document.readyState === 'complete'")

    def wait(self, expression: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", parameters)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code},
            )

    def screenshot(self, path: Path) -> None:
        answer = self.send("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(answer["data"]))

    def accessibility(self) -> list[dict[str, Any]]:
        """The accessibility tree's nodes that are not ignored."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]


@contextmanager
def open_page(chromium: str) -> Iterator[Page]:
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"
    flags += " --window-size=1100,900"
    flags += ' --host-resolver-rules="MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"'  # nothing outside is reached
    with tempfile.TemporaryDirectory() as profile:
        command = f'exec "{chromium}" {flags} --user-data-dir="{profile}" 3<&{to_browser} 4>&{from_browser}'
        browser = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(write, read)
        finally:
            browser.terminate()
            browser.wait(20)
            os.close(write)
            os.close(read)
            time.sleep(0.2)
