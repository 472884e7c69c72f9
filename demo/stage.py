"""The demo's steps, one after the other."""

import csv
import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from demo.brokers import free_port, start_real, start_standin
from demo.live import LivePicture
from demo.processes import DemoError, Processes
from demo.rates import RateMeter
from demo.streams import by_topic, fetch_streams
from demo.verdict import Check, all_checks

HERE = Path(__file__).parent
OUT = HERE / "out"
REPORT = HERE / "report.html"
READY_S = 30.0
DRAIN_S = 60.0
REPORT_S = 300.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asked for."""

    broker: str
    """`standin` or `real`."""
    seconds: float


class Demo:
    """Runs the steps and says what it does.

    Args:
        plan: What to run.
        console: Where it says so.
    """

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._step = 0
        content = yaml.safe_load((HERE / "load.yaml").read_text(encoding="utf-8"))
        self._topics = [
            f"persistent://{tenant}/{local}"
            for tenant, entry in content["tenants"].items()
            for local in entry["topics"]
        ]

    def run(self) -> list[Check]:
        """All steps; returns what was checked.

        Raises:
            DemoError: If a step did not work.
        """
        shutil.rmtree(OUT, ignore_errors=True)
        REPORT.unlink(missing_ok=True)
        OUT.mkdir(parents=True)
        with Processes(OUT) as processes:
            broker_url = self._start_broker(processes)
            address, admin = self._start_sluice(processes, broker_url)
            self._load(processes, admin, f"pulsar://{address}", broker_url)
            self._say("ending Sluice, so that its last log file is closed, and the broker")
            processes.stop("sluice")
            processes.stop("broker")
            self._report(processes)
        return self._check()

    def _start_broker(self, processes: Processes) -> str:
        if self._plan.broker == "real":
            self._say("starting a real Pulsar broker (the first time, its jars are fetched: 236 MB)")
            url = start_real(processes, OUT, self._topics)
        else:
            self._say("starting the stand-in broker")
            url = start_standin(processes)
        self._note(f"it serves {url}")
        return url

    def _start_sluice(self, processes: Processes, broker_url: str) -> tuple[str, str]:
        self._say("starting Sluice in front of it, with the limits of demo/sluice.yaml")
        address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        options = ["--config", str(HERE / "sluice.yaml"), "--listen", address, "--broker", broker_url]
        options += ["--admin", admin, "--access-log", str(OUT / "access-log")]
        processes.start("sluice", [sys.executable, "-m", "sluice", "serve", *options])
        processes.wait_until("sluice", lambda: _answers(f"http://{admin}/readyz"), READY_S)
        self._note(f"clients connect to pulsar://{address}; metrics are on http://{admin}/metrics")
        return address, admin

    def _load(self, processes: Processes, admin: str, service_url: str, broker_url: str) -> None:
        seconds = self._plan.seconds
        self._say(
            f"three tenants publish for {seconds:g} s (demo/load.yaml); messages are received at the broker itself"
        )
        live = OUT / "load-live.jsonl"
        options = ["--service-url", service_url, "--verify-url", broker_url, "--scenario", str(HERE / "load.yaml")]
        options += ["--seconds", str(seconds), "--drain-seconds", str(DRAIN_S)]
        options += ["--out", str(OUT / "counts.json"), "--live", str(live)]
        processes.start("load", [sys.executable, "-m", "sluice", "load", *options])
        with LivePicture(self._console, seconds) as picture:
            watch = _Watch(admin, live, RateMeter(self._topics), picture)
            code = processes.wait_for_end("load", seconds + DRAIN_S + READY_S, watch.look)
        if code not in (0, 1):  # 1: something was lost; the checks say what
            raise DemoError(f"load: ended with code {code}:\n{(OUT / 'load.log').read_text(encoding='utf-8')}")

    def _report(self, processes: Processes) -> None:
        self._say("the Spark job reads the access log and makes the report")
        options = ["--access-log", str(OUT / "access-log"), "--out", str(OUT / "report")]
        processes.start("report", [sys.executable, "-m", "sluice", "report", *options])
        with self._console.status("Spark is at work"):
            code = processes.wait_for_end("report", REPORT_S, lambda: None)
        if code:
            raise DemoError(f"report: ended with code {code}; see {OUT / 'report.log'}")
        shutil.copyfile(OUT / "report" / "report.html", REPORT)
        self._note(f"open {REPORT}")

    def _check(self) -> list[Check]:
        self._say("comparing what arrived with the limits, and the report with what was counted")
        counts = json.loads((OUT / "counts.json").read_text(encoding="utf-8"))
        with (OUT / "report" / "usage.csv").open(encoding="utf-8", newline="") as usage:
            return all_checks(counts, csv.DictReader(usage))

    def _say(self, text: str) -> None:
        self._step += 1
        self._console.print(f"[bold]{self._step}.[/bold] {text}", highlight=False, soft_wrap=True)

    def _note(self, text: str) -> None:
        self._console.print(f"   {text}", highlight=False, soft_wrap=True)


class _Watch:
    """Looks at Sluice and at the load generator's counts twice a second."""

    def __init__(self, admin: str, live: Path, meter: RateMeter, picture: LivePicture) -> None:
        self._admin = admin
        self._live = live
        self._meter = meter
        self._picture = picture
        self._next = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + POLL_S
        streams, load = fetch_streams(self._admin), _last_line(self._live)
        if streams is not None and load is not None:
            self._picture.show(load["at_s"], self._meter.rows(now, by_topic(streams), load["topics"]))


def _last_line(live: Path) -> dict[str, Any] | None:
    """The last whole line of the load generator's live counts; None before the first."""
    if not live.exists():
        return None
    lines = live.read_bytes().rpartition(b"\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own admin address
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
