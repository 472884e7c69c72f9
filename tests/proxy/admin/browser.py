"""A headless Chromium that a test drives by the DevTools protocol, with the WebSocket client that aiohttp has.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import json
import shutil
import subprocess
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.waiting import wait_for

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 30
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_UNTIL = """new Promise((done, fail) => {{
  const give_up = setTimeout(() => fail(new Error("not so after {s} s")), {s}000);
  const look = () => {{ if ({condition}) {{ clearTimeout(give_up); done(true); }} else setTimeout(look, 20); }};
  look();
}})"""
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}


class Page:
    """The one page of a browser.

    Attributes:
        problems: Errors of scripts, failed resources and breaches of the content security policy.
        requested: The URLs that the page has asked for.
    """

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requested: list[str] = []

    async def read(self) -> None:
        """Take what the browser sends, until it ends."""
        async for message in self._socket:
            assert message.type is WSMsgType.TEXT
            self._take(json.loads(message.data))

    def _take(self, event: dict[str, Any]) -> None:
        if "id" in event:
            self._answers.pop(event["id"]).set_result(event)
        elif event["method"] == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            entry = event["params"]["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif event["method"] == "Network.requestWillBeSent":
            self.requested.append(event["params"]["request"]["url"])

    async def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._calls += 1
        number = self._calls
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": values})
        got = await asyncio.wait_for(answer, PATIENCE_S + 5)
        assert "error" not in got, (method, got)
        result: dict[str, Any] = got["result"]
        return result

    async def value(self, script: str) -> Any:
        """The value of an expression in the page."""
        got = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, (script, got, self.problems)
        return got["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        await self.value(_UNTIL.format(condition=condition, s=PATIENCE_S))

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def click(self, selector: str) -> None:
        """Press and release the mouse on an element that can be seen."""
        find = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{find} && {find}.checkVisibility() && !{find}.disabled")
        x, y = await self.value(
            f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'center'}}); const r = e.getClientRects()[0];"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def write(self, selector: str, text: str) -> None:
        """Replace the text of a field by typing."""
        await self.click(selector)
        await self.value(f"document.querySelector({json.dumps(selector)}).select()")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key of the keyboard."""
        code, text = _KEYS[key]
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    async def look_as(self, width: int, height: int, *, scheme: str = "light", factor: float = 1) -> None:
        """Give the page a width, a height and a colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=factor,
            mobile=width < 600,
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def violations(self) -> list[str]:
        """The rules of axe-core that the page breaks, each with the first element that breaks it."""
        await self.value(files("axe_core_python").joinpath("axe.min.js").read_text())
        report = await self.value("axe.run()")
        return [f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}" for each in report["violations"]]

    async def picture(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        picture = await self.call("Page.captureScreenshot")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(picture["data"]))


class Chromium:
    """A browser that runs, with one page, which tests use one after the other.

    A page for each test would be a process for each. Their consoles have ports of their own, and so storage, cookies
    and cache.

    Args:
        address: `host:port` of its DevTools.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """The page; it is empty again at the end."""
        async with ClientSession(f"http://{self._address}") as session, TaskGroup() as tasks:
            async with session.get("/json/list") as answer:
                (target,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                reading = tasks.create_task(page.read())
                await page.call("Log.clear")  # else the entries of the test before are told again
                yield page
                await page.call("Page.navigate", url="about:blank")
                reading.cancel()


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser that keeps its files in a folder."""
    assert PROGRAM is not None
    command = [PROGRAM, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port = folder / "DevToolsActivePort"
            wait_for(lambda: port.exists() and port.read_text().count("\n"))
            yield Chromium(f"127.0.0.1:{port.read_text().split()[0]}")
        finally:
            process.kill()
