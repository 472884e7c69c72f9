"""Looks at a proxy again and again and shows what it saw."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from rich.console import Console
from rich.live import Live

from proxy.admin_link import AdminLink
from proxy.admin_options import AdminLinkError
from proxy.console.poll import Poll, fetch
from proxy.console.rows import Sort
from proxy.console.table import Shown, View, plain, rendered, show

_HEADING_LINES = 4


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants to see.

    Args:
        link: To the proxy.
        interval_s: Seconds between two looks.
        once: One table, then end.
        sort: What comes first.
        rows: Most rows.
    """

    link: AdminLink
    interval_s: float
    once: bool
    sort: Sort
    rows: int


def run(request: Request, console: Console | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it until it was shown once, or until Ctrl-C.

    Raises:
        AdminLinkError: If there is no answer; once there was one, a live table waits for the next instead.
    """
    console = console or Console()
    watch = Watch(request, sleep)
    try:
        if console.is_terminal and not request.once:
            _live(watch, request.rows, console)
        watch.first(0)
        _print(watch.next(request.rows), console)
        while not request.once:
            _print(watch.next(request.rows), console)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:  # who read has seen enough; nor may the interpreter's own flush at the end fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Watch:
    """The looks at one proxy.

    Args:
        request: What somebody wants to see.
        sleep: Waits for some seconds.
    """

    def __init__(self, request: Request, sleep: Callable[[float], None]) -> None:
        self._request = request
        self._sleep = sleep
        self._before: Poll | None = None

    def first(self, most: int) -> Shown:
        """What there is now: no rates yet."""
        poll = self._before = fetch(self._request.link)
        return show(poll, None, self._view(most))

    def next(self, most: int) -> Shown:
        """What there is an interval later, with the rates over it.

        Raises:
            AdminLinkError: If there is no answer; the next rates will not span the gap.
        """
        self._sleep(self._request.interval_s)
        before, self._before = self._before, None
        poll = self._before = fetch(self._request.link)
        return show(poll, before, self._view(most))

    def _view(self, most: int) -> View:
        return View(f"{time.strftime('%H:%M:%S')} {self._request.link.address}", self._request.sort, most)


def _print(shown: Shown, console: Console) -> None:
    if console.is_terminal:
        console.print(rendered(shown))
    else:
        console.file.write(plain(shown) + "\n\n")
        console.file.flush()


def _live(watch: Watch, most: int, console: Console) -> NoReturn:
    def room() -> int:
        return max(1, min(most, console.height - _HEADING_LINES))

    shown = watch.first(room())
    with Live(rendered(shown), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            problem = ""
            try:
                shown = watch.next(room())
            except AdminLinkError as error:
                problem = str(error)
            live.update(rendered(shown, problem))
