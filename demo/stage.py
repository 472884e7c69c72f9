"""The demo's steps, one after the other."""

import contextlib
import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.markup import escape

from adminrest.client import AdminClient
from demo.processes import WARM_UP_S, DemoError, Processes, claimed, sluice, start_real, start_standin, warm_up
from demo.verdict import Check, all_checks
from demo.watch import LivePicture, Watch
from loadgen.real.process import free_port
from protocol.exit_codes import ExitCode

HERE = Path(__file__).parent
OUT = HERE / "out"
REPORT = HERE / "report.html"
READY_S = 30.0
DRAIN_S = 60.0
REPORT_S = 300.0
HOLD_S = 300.0
"""Seconds of one load while the demo holds; the next one follows. The load keeps each message's times till its end."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The choices of the command line."""

    broker: str
    """`standin` or `real`."""
    seconds: float
    out: Path = OUT
    """Folder for everything that the demo leaves behind; emptied first."""
    report: Path = REPORT
    holds: bool = False
    """Whether it goes on after its checks, with load, until it is interrupted."""


class Demo:
    """Runs the steps and prints each.

    Args:
        plan: The choices of the command line.
        console: The terminal or file to write to.
    """

    def __init__(self, plan: DemoPlan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._step = 0
        content = yaml.safe_load((HERE / "load.yaml").read_text(encoding="utf-8"))
        self._topics = [
            f"persistent://{tenant}/{local}"
            for tenant, entry in content["tenants"].items()
            for local in entry["topics"]
        ]

    def run(self, on_checked: Callable[[list[Check]], None] = lambda _: None) -> list[Check]:
        """Run all steps; returns the checks.

        Args:
            on_checked: Called with the checks, before the demo goes on where its plan says so.

        Raises:
            DemoError: If a step failed.
        """
        with claimed(self._plan.out), Processes(self._plan.out) as processes:
            self._plan.report.unlink(missing_ok=True)
            broker_url = self._start_broker(processes)
            address, admin = self._start_sluice(processes, broker_url)
            self._load(processes, admin, f"pulsar://{address}", broker_url)
            self._say("ending Sluice, so that its last log file is closed, and the broker")
            processes.stop("sluice")
            processes.stop("broker")
            self._report(processes)
            checks = self._check()
            on_checked(checks)
            if self._plan.holds:
                self._hold(processes)
            return checks

    def _hold(self, processes: Processes) -> None:
        """Offer load to another Sluice, whose console is open, until an interrupt."""
        broker_url = self._start_broker(processes)
        address, admin = self._start_sluice(processes, broker_url, "access-log-held")
        self._say(f"the same load again, until Ctrl-C: look at http://{admin}/console")
        options = ["--service-url", f"pulsar://{address}", "--verify-url", broker_url]
        options += ["--scenario", str(HERE / "load.yaml"), "--out", str(self._plan.out / "held.json")]
        options += ["--live", str(self._plan.out / "held-live.jsonl"), "--seconds", str(HOLD_S)]
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                processes.start("load", sluice("load", *options))
                processes.wait_for_end(
                    "load", HOLD_S + DRAIN_S + READY_S, lambda: None, good_codes=(ExitCode.DONE, ExitCode.FINDINGS)
                )

    def _start_broker(self, processes: Processes) -> str:
        if self._plan.broker == "real":
            self._say("starting a real Pulsar broker (the first time, 324 MB of jars and classes are made ready)")
            url = start_real(processes, self._plan.out, self._topics)
            self._note(f"warming it up for {WARM_UP_S} s (demo/warm-up.yaml says why)")
            warm_up(processes, self._plan.out, url)
        else:
            self._say("starting the stand-in broker")
            url = start_standin(processes)
        self._note(f"it serves {url}")
        return url

    def _start_sluice(self, processes: Processes, broker_url: str, log: str = "access-log") -> tuple[str, str]:
        self._say("starting Sluice in front of it, with the limits of demo/sluice.yaml")
        address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        options = ["--config", str(HERE / "sluice.yaml"), "--listen", address, "--broker", broker_url]
        options += ["--admin", admin, "--access-log", str(self._plan.out / log)]
        processes.start("sluice", sluice("serve", *options))
        processes.wait_until("sluice", AdminClient(f"http://{admin}", timeout_s=2).is_ready, READY_S)
        self._note(f"clients connect to pulsar://{address}; metrics are on http://{admin}/metrics")
        return address, admin

    def _load(self, processes: Processes, admin: str, service_url: str, broker_url: str) -> None:
        seconds = self._plan.seconds
        self._say(
            f"three tenants publish for {seconds:g} s (demo/load.yaml); messages are received at the broker itself"
        )
        live = self._plan.out / "load-live.jsonl"
        options = ["--service-url", service_url, "--verify-url", broker_url, "--scenario", str(HERE / "load.yaml")]
        options += ["--seconds", str(seconds), "--drain-seconds", str(DRAIN_S)]
        options += ["--out", str(self._plan.out / "counts.json"), "--live", str(live)]
        processes.start("load", sluice("load", *options))
        with LivePicture(self._console, seconds) as picture:
            watch = Watch(admin, live, self._topics, picture)
            # code 1: messages are missing, as the checks report
            processes.wait_for_end(
                "load", seconds + DRAIN_S + READY_S, watch.look, good_codes=(ExitCode.DONE, ExitCode.FINDINGS)
            )

    def _report(self, processes: Processes) -> None:
        self._say("the Spark job reads the access log and makes the report")
        options = ["--access-log", str(self._plan.out / "access-log"), "--out", str(self._plan.out / "report")]
        processes.start("report", sluice("report", *options))
        with self._console.status("Spark is at work"):
            processes.wait_for_end("report", REPORT_S, lambda: None)
        try:
            shutil.copyfile(self._plan.out / "report" / "report.html", self._plan.report)
        except FileNotFoundError as error:
            raise DemoError(f"report: it made no {error.filename}") from error
        self._note(f"open {self._plan.report}")

    def _check(self) -> list[Check]:
        self._say("comparing what arrived with the limits, and the report with what was counted")
        try:
            counts = json.loads((self._plan.out / "counts.json").read_text(encoding="utf-8"))
            with (self._plan.out / "report" / "usage.csv").open(encoding="utf-8", newline="") as usage:
                return all_checks(counts, csv.DictReader(usage))
        except FileNotFoundError as error:
            raise DemoError(f"check: {error.filename} was not made") from error

    def _say(self, text: str) -> None:
        self._step += 1
        self._console.print(f"[bold]{self._step}.[/bold] {escape(text)}", highlight=False, soft_wrap=True)

    def _note(self, text: str) -> None:
        self._console.print(f"   {text}", markup=False, highlight=False, soft_wrap=True)
