"""Makes the pictures of the console in docs/images: on a desktop and on a phone, light and dark, and one limit.

python -m tools.console_pictures                         the demo's load for three minutes, for the last hour of a limit
python -m tools.console_pictures --of 127.0.0.1:8080     of a proxy that runs, whose admin address takes no token

It needs Chromium, and takes what is on the screen then: the figures differ each time.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from adminrest.client import AdminClient
from demo.processes import Processes, sluice, start_standin
from demo.stage import HERE, READY_S
from loadgen.real.process import free_port
from tests.proxy.admin.browser import Chromium, chromium

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
DESKTOP, PHONE = (1120, 960), (360, 740)
SHOTS = (
    ("console.png", DESKTOP, "light"),
    ("console-dark.png", DESKTOP, "dark"),
    ("console-phone.png", PHONE, "light"),
    ("console-phone-dark.png", PHONE, "dark"),
)
LIMIT = "console-limit.png"
_LOAD_S = 200.0


async def take(admin: str, folder: Path, browser: Chromium) -> None:
    """Take the pictures.

    Args:
        admin: `host:port` of the admin address of a proxy with held streams.
        folder: Gets the pictures, under the names of `SHOTS` and `LIMIT`.
        browser: Shows the page.
    """
    async with browser.page() as page:
        await page.look_as(*DESKTOP)
        await page.open(f"http://{admin}/console")
        await page.until("state.looks > 2 && document.querySelectorAll('#streams tbody tr').length > 0")
        for name, size, scheme in SHOTS:
            await page.look_as(*size, scheme=scheme)
            await page.picture(folder / name)
        await page.look_as(*DESKTOP)
        await page.click("#pause")  # so that the first row stays the limit that streams wait on
        await page.until("!state.isLooking")
        await page.click("#limits tbody button.link")
        await page.until("document.getElementById('chart-line').points.length > 1")
        await page.click("#raise")
        await page.until("document.getElementById('effect').innerText.includes('within it')")
        await page.picture(folder / LIMIT)


@contextlib.contextmanager
def demo_under_load(folder: Path, seconds: float) -> Iterator[str]:
    """Run the demo's proxy and load for some seconds, and then on; gives the admin address."""
    with Processes(folder) as processes:
        broker_url = start_standin(processes)
        address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        options = ["--config", str(HERE / "sluice.yaml"), "--listen", address, "--broker", broker_url]
        processes.start("sluice", sluice("serve", *options, "--admin", admin))
        processes.wait_until("sluice", AdminClient(f"http://{admin}", timeout_s=2).is_ready, READY_S)
        options = ["--service-url", f"pulsar://{address}", "--verify-url", broker_url]
        options += ["--scenario", str(HERE / "load.yaml"), "--out", str(folder / "counts.json")]
        processes.start("load", sluice("load", *options, "--seconds", str(seconds + 60)))
        time.sleep(seconds)
        yield admin


def main() -> None:
    """Take the pictures, of the demo or of a proxy that runs."""
    parser = argparse.ArgumentParser(prog="python -m tools.console_pictures", description="Pictures of the console.")
    parser.add_argument("--of", metavar="HOST:PORT", help="the admin address of a proxy that runs (default: the demo)")
    parser.add_argument("--seconds", type=float, default=_LOAD_S, help="of the demo's load before the pictures")
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        admin = arguments.of or stack.enter_context(demo_under_load(Path(folder), arguments.seconds))
        browser = stack.enter_context(chromium(Path(folder) / "profile"))
        asyncio.run(take(admin, arguments.out, browser))


if __name__ == "__main__":
    main()
