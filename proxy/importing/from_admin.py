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
from proxy.importing.found import Found
from proxy.importing.keys import DEFAULTS
from proxy.importing.switch_off import broker_off
from proxy.importing.values import Entry


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

    What its configuration holds is taken where it differs from what Pulsar has by default: nobody has set the rest.

    Raises:
        ImportFailed: If values cannot be meant.
    """
    found = take_keys(_entries(state))
    broker_off(found)
    take_state(state, found)
    return found


def _entries(state: BrokerState) -> list[Entry]:
    own = {
        key: value for key, value in state.running.items() if key not in DEFAULTS or DEFAULTS[key] not in {value, None}
    }
    return [
        Entry(key, value, "dynamic configuration" if key in state.dynamic else "configuration of the broker")
        for key, value in (own | state.dynamic).items()
    ]


async def _ask(url: URL, token: str, bar: Progress) -> BrokerState:
    tasks = {}

    def progress(what: str, done: int, all_: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=all_)
        bar.update(tasks[what], completed=done)

    async with connected(url, token) as admin:
        return await walk(admin, progress)
