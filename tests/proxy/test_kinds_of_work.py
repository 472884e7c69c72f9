"""Each kind of work is measured where it is done, so that a late timer names it."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from limiter.levels import Setting
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.counters import Counters
from proxy.files import FileReader
from proxy.fleet.service import FleetService
from proxy.policies.keys import Principal
from proxy.reload import Reloader
from proxy.runtime import Searches
from proxy.session.transport import TransportContext
from proxy.slices import CallsInSlices, Slices, Work
from proxy.timers import BEAT_S, READS_AT_REST
from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.blocks import block
from tests.proxy.conversation import World, publisher
from tests.proxy.fleet.hub import Hub, HubLink
from tests.proxy.identity.keys import token_files
from tests.proxy.manual_loop import ManualLoop
from tests.proxy.test_longest_turn import ONE_A_SECOND, change, with_producers
from tests.proxy.test_tls_records import Line
from tests.proxy.tls import Authorities
from tests.proxy.wire import PING, connect, producer, send

Done = set[str]
"""The kinds that were measured."""


def in_world(act: Callable[[World], None], folder: Path) -> Done:
    world = World(limits=ONE_A_SECOND)
    world.counters.work_ns.clear()
    act(world)
    done = set(world.counters.work_ns)
    world.close()
    return done


def interval_ends(world: World) -> None:
    publisher(world)[0] >> send(0)
    world.counters.work_ns.clear()
    world.advance(1)


def limit_appears(world: World) -> None:
    publisher(world)
    change(world, Setting.PROXY, "", 10)


def client_leaves(world: World) -> None:
    publisher(world)[0].leave()


def client_is_blocked(world: World) -> None:
    publisher(world)
    block(world, "address", "192.0.2.7")


def client_opens_a_stream(world: World) -> None:
    client, _ = publisher(world)
    world.counters.work_ns.clear()
    client >> [producer(2, "persistent://acme/shop/2")]


def client_greets(world: World) -> None:
    client = world.client()
    world.counters.work_ns.clear()
    client >> connect()


def streams_send_at_once(world: World) -> None:
    client, _ = with_producers(world, 20, waiting=False)
    world.counters.work_ns.clear()
    client >> [send(0, number) for number in range(20)]


def entries_are_released(world: World) -> None:
    client, _ = publisher(world)
    client >> [send(number) for number in range(3)]
    world.advance(2)


def memory_is_given_back(world: World) -> None:
    world.loop.run(world.engine.shared.heap.freed)
    world.advance(10)


def token_is_shown(folder: Path) -> Done:
    world = World(authentication=token_files(folder))
    world.client() >> connect(auth_method_name="token", auth_data=b"a.b.c")
    done = set(world.counters.work_ns)
    world.close()
    return done


def client_shakes_hands(folder: Path) -> Done:
    authorities = Authorities(folder)
    world = World(**authorities.settings())
    world.tls_client(authorities.client()).shake_hands()
    done = set(world.counters.work_ns)
    world.close()
    return done


def all_objects_are_searched(_folder: Path) -> Done:
    counters, soon = Counters(), list[Callable[[], None]]()
    measure = partial(Slices(counters).measure, Work.MEMORY)
    rule = Searches(soon.append, measure=measure)
    loop = asyncio.new_event_loop()

    async def search() -> None:
        rule._search_again()

    loop.run_until_complete(search())
    loop.close()
    return set(counters.work_ns)


def asked(path: str, _folder: Path) -> Done:
    async def ask() -> Done:
        admin = Admin()
        async with admin.client:
            await admin.ask("GET", path)
        return set(admin.engine.counters.work_ns)

    return asyncio.run(ask())


def member_reports(_folder: Path) -> Done:
    clock = ManualClock()
    loop, counters = ManualLoop(clock), Counters()
    member = FleetService(Fleet(name="f"), "a", CallsInSlices(Slices(counters, clock), Work.FLEET).add, clock)
    hub = Hub(clock)
    loop.run(lambda: loop.create_task(member.start(lambda callbacks: HubLink(hub, callbacks))))
    loop.advance(3)
    loop.close()
    return set(counters.work_ns)


def files_are_read_again(_folder: Path) -> Done:
    counters = Counters()

    async def take(_principal: Principal) -> bool:
        return False

    async def reload() -> None:
        config = Config()
        files = [FileReader("tls", lambda: lambda: None)]
        measure = partial(Slices(counters).measure, Work.FILES)
        await Reloader(config, lambda: config, files, lambda _: take, counters, measure=measure).reload("SIGHUP")

    asyncio.run(reload())
    return set(counters.work_ns)


def small_records_come(folder: Path) -> Done:
    counters, authorities, loop = Counters(), Authorities(folder), ManualLoop(ManualClock())
    line = Line(authorities, TransportContext(counters, Slices(counters)))
    loop.run(line.arrives, b"".join(line.sealed(b"x") for _ in range(20)))
    loop.close()
    return {work for work, spent in counters.work_ns.items() if spent}


CASES: list[tuple[Work, Callable[[Path], Done]]] = [
    (Work.LINES, partial(in_world, interval_ends)),
    (Work.POLICIES, partial(in_world, limit_appears)),
    (Work.ENDINGS, partial(in_world, client_leaves)),
    (Work.BLOCKS, partial(in_world, client_is_blocked)),
    (Work.COMMANDS, partial(in_world, client_opens_a_stream)),
    (Work.COMMANDS, partial(in_world, client_greets)),
    (Work.ENTRIES, partial(in_world, streams_send_at_once)),
    (Work.RELEASES, partial(in_world, entries_are_released)),
    (Work.MEMORY, partial(in_world, memory_is_given_back)),
    (Work.MEMORY, all_objects_are_searched),
    (Work.HANDSHAKES, client_shakes_hands),
    (Work.RECORDS, small_records_come),
    (Work.CREDENTIALS, token_is_shown),
    (Work.REQUESTS, partial(asked, "/sluice/status")),
    (Work.SCRAPES, partial(asked, "/metrics")),
    (Work.FLEET, member_reports),
    (Work.FILES, files_are_read_again),
]


@pytest.mark.parametrize(("work", "does"), CASES, ids=[f"{work}-{number}" for number, (work, _) in enumerate(CASES)])
def test_work_is_measured_as_its_kind(work: Work, does: Callable[[Path], Done], tmp_path: Path) -> None:
    assert work in does(tmp_path)


def test_each_kind_of_work_has_a_case() -> None:
    assert {work for work, _ in CASES} == set(Work)


def test_the_heartbeat_beats_while_peers_are_read(make_world: Callable[..., World]) -> None:
    world = make_world()
    client, broker = publisher(world)
    heartbeat, resting = world.engine.slices.heartbeat, world.loop.timers
    heartbeat.start()
    assert world.loop.timers == resting
    for peer in (client, broker):
        for _ in range(READS_AT_REST):
            peer >> PING
        assert "Heartbeat._beat" in world.loop.timers
        world.advance(3 * BEAT_S)
        assert "Heartbeat._beat" not in world.loop.timers
    heartbeat.stop()


def test_messages_are_not_measured(tmp_path: Path) -> None:
    """They are most of what a process does: to measure each read would cost more than it tells."""

    def sends(world: World) -> None:
        client, _ = publisher(world)
        client >> [send(number) for number in range(1, 5)]
        world.counters.work_ns.clear()
        client >> [send(number) for number in range(5, 9)]

    assert in_world(sends, tmp_path) == set()
