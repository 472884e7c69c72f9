"""A client that says anything, Sluice, and the model of a broker: one step after the other, each of them checked.

What is on its way waits: the client's bytes leave it in any portions, the broker reads, answers, closes and creates
when a step says so. After every step, whatever is still on its way:

- where the broker has a producer or consumer and Sluice an accepted one of the same id, they are the same;
- what the broker took in on a topic, and what the client got of one, was charged to streams of that topic;
- an accepted stream is within the limits of its topic;
- what Sluice follows is asked under an id of its own, and the client is answered under its own ids only.
"""

from dataclasses import dataclass
from typing import Any

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from protocol.commands import encode, read
from protocol.frames import FrameCutter
from proxy.session.session import Session
from tests.proxy.blocks import block, unblock
from tests.proxy.conversation import World
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids import product_view as view
from tests.proxy.session.ids.adversary import HELD, REFUSED, Said
from tests.proxy.session.ids.broker_answers import entry_of
from tests.proxy.session.ids.broker_ids import Held, Task
from tests.proxy.session.ids.broker_model import NO_REQUEST, ModelBroker
from tests.proxy.session.ids.counts import Counts, by_unit, count
from tests.proxy.session.ids.lightproto import Unreadable, read_command, taken_apart
from tests.proxy.session.ids.rules import Broken, Sums, check_covered

LIMITS = {
    "topics": {
        HELD: {"publish": {"messages": 5}, "dispatch": {"messages": 5}},
        REFUSED: {"publish": {"messages": 5, "mode": "reject"}},
    },
    "namespaces": {"acme/shop": {"publish_total": {"messages": 100_000}, "dispatch_total": {"messages": 100_000}}},
}
BLOCKS = (
    ("topic", HELD),
    ("topic", REFUSED),
    ("producer", "loud"),
    ("consumer", "loud"),
    ("subscription", "one"),
    ("producer", "standalone-0-1"),
)
MOST_ROUNDS = 300
"""Until all is drained."""


@dataclass(frozen=True)
class Step:
    """What one of the three does.

    Args:
        what: The name of a method of `Duel`.
        args: Its arguments.
    """

    what: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.what == "client_says":
            commands, share = self.args
            return "client: " + " + ".join(map(str, commands)) + (f"  (sends {share:.2f} of it)" if share < 1 else "")
        return f"{self.what} {' '.join(map(str, self.args))}"


class Duel:
    """One proxy, and one connection after the other."""

    def __init__(self) -> None:
        self.world = World(transports=FakeTransport, limits=LIMITS)
        self.blocked: list[tuple[str, str]] = []
        self.begun = 0
        self._begin()

    def _begin(self) -> None:
        self.begun += 1
        self.client, self.broker = self.world.pair("127.0.0.1:6651")
        self.session: Session = self.world.sessions[-1]
        self.model = ModelBroker()
        self.outbox = b""
        self.came = self.cut = b""
        self.received = Counts()
        self._asked = {NO_REQUEST}
        self._given: set[int] = set()
        self._inbox: list[bytes] = []
        self._cutters = FrameCutter(2**31), FrameCutter(2**31)
        self._published, self._consumed = Sums("publish"), Sums("dispatch")

    @property
    def is_over(self) -> bool:
        return self.client.is_gone or self.broker.is_gone or bool(self.model.closed_for)

    def do(self, step: Step) -> None:
        """Take one step, and look."""
        if self.is_over:
            self._end()
        getattr(self, step.what)(*step.args)
        self._look()

    # ---- the client

    def client_says(self, commands: tuple[Said, ...], share: float) -> None:
        for command in commands:
            self.outbox += command.encoded()
            self._asked.update(value for _, value in (*command.fields, *command.decoy) if isinstance(value, int))
        amount = max(1, round(len(self.outbox) * share))
        chunk, self.outbox = self.outbox[:amount], self.outbox[amount:]
        if chunk:
            self.client.send_bytes(chunk)

    # ---- the broker

    def broker_reads(self, most: int) -> None:
        for frame in self._inbox[:most]:
            self.model.take(frame)
        del self._inbox[:most]

    def broker_does(self, which: int, outcome: int) -> None:
        if self.model.tasks:
            self.model.complete(self.model.tasks[which % len(self.model.tasks)], outcome)

    def broker_writes(self, most: int, cut: int) -> None:
        data = self.cut + b"".join(self.model.out[:most])
        del self.model.out[:most]
        keep = min(cut, len(data))
        data, self.cut = data[: len(data) - keep], data[len(data) - keep :]
        if data:
            self.broker.send_bytes(data)

    def broker_closes(self, which: int) -> None:
        held = self._held()
        if held:
            self.model.close(held[which % len(held)])

    def broker_delivers(self, which: int, messages: int) -> None:
        consumers = [held for held in self.model.consumers.values() if held.permits > 0]
        if consumers:
            self.model.deliver(consumers[which % len(consumers)], messages, 10)

    def broker_authorizes(self, slowly: bool) -> None:  # noqa: FBT001 - a step's argument
        self.model.authorizes_slowly = slowly

    def _held(self) -> list[Held]:
        return [*self.model.producers.values(), *self.model.consumers.values()]

    # ---- the operator, and time

    def operator_blocks(self, which: int) -> None:
        rule = BLOCKS[which % len(BLOCKS)]
        if rule not in self.blocked:
            self.blocked.append(rule)
            block(self.world, *rule)

    def operator_unblocks(self) -> None:
        while self.blocked:
            unblock(self.world, *self.blocked.pop())

    def operator_limits(self, messages: int) -> None:
        policies = self.world.engine.registry.policies
        policies.put("publish", Setting.TOPIC, HELD, Value(Limit(rate(messages)), "test"))
        self.world.loop.run(self.world.engine.policies_changed)

    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    def all_settles(self) -> None:
        """Whatever is on its way arrives, and is answered in the usual way."""
        self.client_says((), 1.0)
        for _ in range(MOST_ROUNDS):
            self._collect()
            if self.is_over:
                return
            if not (self._inbox or self._soon() or self.model.out or self.cut):
                break
            self.broker_reads(10**6)
            while tasks := self._soon():
                self.model.complete(tasks[0], 0)
            self.broker_writes(10**6, 0)

    def _soon(self) -> list[Task]:
        """What the broker does next; what is late may be later than that."""
        return [task for task in self.model.tasks if task.what != "stale"]

    # ---- what must be true

    def _look(self) -> None:
        self._collect()
        streams = view.live(self.world, self.session)
        self._published.add(streams)
        self._consumed.add(streams)
        for of, accepted in zip((self.model.producers, self.model.consumers), view.accepted(self.session), strict=True):
            for number, stream in accepted.items():
                held = of.get(number)
                if held is not None and held.state == "created" and held.place != view.place_of(stream):
                    is_name = held.place[:2] == view.place_of(stream)[:2]
                    text = f"id {number}: the broker has {held.place}, Sluice {view.place_of(stream)}"
                    raise Broken("name" if is_name else "identity", text)
                if "://acme/shop/" in stream.name.topic and ("namespace", "acme/shop") not in view.limited_by(stream):
                    raise Broken("limits", f"id {number}: {stream.name.topic} is not within its namespace's limit")
        check_covered("the broker took in", self.model.persisted, self._published.read())
        check_covered("the client got", self.received, self._consumed.read())
        if self.world.loop.trouble:
            raise Broken("trouble", f"the loop's trouble: {self.world.loop.trouble}")

    def _collect(self) -> None:
        """Take what Sluice has written."""
        written = self.broker.transport.written
        if written:
            frames = list(self._cutters[0].feed(bytes(written)))
            for frame in frames:
                self._check_request(frame)
            self._inbox += frames
            written.clear()
        written = self.client.transport.written
        if written:
            for frame in self._cutters[1].feed(bytes(written)):
                self._client_hears(frame)
            written.clear()

    def _check_request(self, frame: bytes) -> None:
        """What Sluice follows goes on under an id that nobody can guess or has had, in the one usual form."""
        try:
            kind, fields = read_command(taken_apart(frame)[0], c.OF_THE_FUTURE)
        except Unreadable:
            return
        if kind not in c.FOLLOWED:
            return
        request = fields["request"]
        if request in self._given or not 2**61 <= request < 2**63:
            raise Broken("request id", f"the broker got {kind} with {request}")
        self._given.add(request)
        if frame != encode(read(taken_apart(frame)[0])):
            raise Broken("form", f"the broker got {frame.hex(' ')}")

    def _client_hears(self, frame: bytes) -> None:
        kind, (data, payload) = frame[9], taken_apart(frame)
        if kind in c.ANSWERS:
            request = read_command(data, c.OTHERS)[1].get("request", NO_REQUEST)
            if request not in self._asked:
                raise Broken("answer", f"the client is answered {request}, which it never asked")
        if kind != c.MESSAGE:
            return
        entry = entry_of(data)
        topic, messages = self.model.delivered[entry]
        count(self.received, topic, messages, len(payload))

    # ---- the end

    def settle_and_compare(self) -> None:
        """All is drained: the maps are equal, and so are the counts."""
        self.operator_unblocks()
        self.operator_limits(1000)
        self.all_settles()
        while not self.is_over and any(stream.held for stream in view.live(self.world, self.session)):
            self.world.advance(2)
            self.all_settles()
        if self.is_over:
            return
        for of, accepted in zip((self.model.producers, self.model.consumers), view.accepted(self.session), strict=True):
            at_broker = {number: held.place for number, held in of.items()}
            here = {number: view.place_of(stream) for number, stream in accepted.items()}
            if at_broker != here:
                raise Broken("quiet", f"the broker has {at_broker}, Sluice {here}")
        self._look()
        got = by_unit(self.model.persisted + self.model.ignored)
        if got != by_unit(self._published.read()):
            raise Broken("quiet charge", f"the broker got {got}, charged is {+self._published.read()}")
        if +self.received != +self._consumed.read():
            raise Broken("quiet charge", f"the client got {+self.received}, charged is {+self._consumed.read()}")

    def _end(self) -> None:
        """The connection has ended; another begins."""
        if not self.client.is_gone:
            self.client.leave()
        self.world.advance(self.world.config.linger + 1)
        self._begin()

    def close(self) -> None:
        """End everything, with what holds at the end of every conversation."""
        self.world.close()
