"""Takes over what a running broker limits, by its admin REST; nothing is changed there."""

import asyncio
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from yarl import URL

from proxy.importing.admin_client import connected, read_token, read_url
from proxy.importing.admin_policies import take_state
from proxy.importing.admin_walk import walk
from proxy.importing.broker_keys import take_keys
from proxy.importing.broker_state import BrokerState
from proxy.importing.found import Found, Left
from proxy.importing.keys import DEFAULTS
from proxy.importing.switch_off import broker_off
from proxy.importing.values import Entry

_RUNNING = "configuration of the broker"
_UNSURE = "its default depends on the broker's memory, so one cannot see if it was set; if so, set publish.hold_total"


def from_broker(text: str, token_file: Path | None) -> Found:
    """What the broker at a URL says.

    Raises:
        ImportFailed: If it refuses something, does not answer, or has values that cannot be meant.
    """
    url, token = read_url(text), read_token(token_file)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        return found_in(asyncio.run(_ask(url, token, bar)))


def found_in(state: BrokerState) -> Found:
    """Everything in a broker's answers.

    Of its configuration counts what differs from Pulsar's default, as nobody has set the rest.

    Raises:
        ImportFailed: If values cannot be meant.
    """
    running = {key: value for key, value in state.running.items() if key not in state.dynamic}
    unsure = [key for key in running if key in DEFAULTS and DEFAULTS[key] is None]
    entries = [
        Entry(key, value, _RUNNING) for key, value in running.items() if DEFAULTS.get(key, "") not in {value, None}
    ]
    entries += [Entry(key, value, "dynamic configuration") for key, value in state.dynamic.items()]
    found = take_keys(entries)
    found.left += [Left(Entry(key, running[key], _RUNNING).told, _UNSURE) for key in unsure]
    broker_off(found)
    take_state(state, found)
    return found


async def _ask(url: URL, token: str, bar: Progress) -> BrokerState:
    tasks = {}

    def progress(what: str, done: int, all_: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=all_)
        bar.update(tasks[what], completed=done)

    async with connected(url, token) as admin:
        return await walk(admin, progress)
