"""What a broker does with one connection's commands: ids in creation, created and failed, its answers, its closes.

Frames are given to `take`, answers are put into `out`, and what comes later, in any order, waits in `tasks` until
somebody completes it.

Source: org.apache.pulsar.broker.service.ServerCnx, 4.0.8, against which `tests/real/test_broker_model.py` holds it
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.broker_answers import Answers, message_frame
from tests.proxy.session.ids.broker_ids import Held, Task, full_name
from tests.proxy.session.ids.counts import Counts, count
from tests.proxy.session.ids.lightproto import FieldList, Unreadable, command, read_command, taken_apart

NO_REQUEST = 2**64 - 1
MOST_PERMITS = 2**31
WAIT_FOR_EXCLUSIVE = 2


class ModelBroker(Answers):
    """A broker's end of one connection.

    Attributes:
        tasks: What it will do.
        producers, consumers: Its ids.
        persisted: Entries, messages and bytes that it took in, by topic.
        ignored: The same, of no topic, of what was sent to producers that it had closed, or that were closing.
        delivered: The topic of each entry that it wrote, and its messages, by entry id.
        closed_for: Why it has ended the connection; empty while it has not.
        authorizes_slowly: Whether a PRODUCER has to wait for its authorization, before its id is claimed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Task] = []
        self.producers: dict[int, Held] = {}
        self.consumers: dict[int, Held] = {}
        self.persisted = Counts()
        self.ignored = Counts()
        self.delivered: dict[int, tuple[str, int]] = {}
        self.closed_for = ""
        self.authorizes_slowly = False
        self._recently_closed: set[int] = set()
        self._names = 0

    def take(self, whole: bytes) -> None:
        """One frame from the client."""
        if self.closed_for:
            return
        data, payload = taken_apart(whole)
        try:
            kind, fields = read_command(data, c.OF_THE_FUTURE)
        except Unreadable as error:
            self.closed_for = f"unreadable: {error}"
            return
        if kind == c.SEND:
            self._send(fields, len(payload))
        elif kind in c.FUTURE:
            self._answer_from_the_future(kind, fields)
        else:
            _HANDLERS[kind](self, fields)

    # ---- producers

    def _producer(self, fields: dict[str, Any]) -> None:
        place = (full_name(fields["topic"]), "", fields.get("name", ""))
        held = Held(c.PRODUCER, fields["id"], place, fields["request"])
        held.waits = fields.get("access") == WAIT_FOR_EXCLUSIVE
        if self.authorizes_slowly:
            self.tasks.append(Task("authorize", held, held.request))
        else:
            self._claim(held)

    def _claim(self, held: Held) -> None:
        before = self.producers.setdefault(held.number, held)
        if before is held:
            self.tasks.append(Task("create", held, held.request))
        elif before.state == "creating":
            self._error(held.request, c.SERVICE_NOT_READY, "Producer is already present on the connection")
        elif before.state == "failed":
            del self.producers[held.number]
            self._error(
                held.request, c.PRODUCER_BUSY, "Producer is already failed to register present on the connection"
            )
        else:
            self._producer_success(held.request, before)

    def _close_producer(self, fields: dict[str, Any]) -> None:
        held = self.producers.get(fields["id"])
        if held is not None and held.state == "created":
            held.is_closing = True
            self.tasks.append(Task("close", held, fields["request"]))
            return
        if held is not None:
            held.state = "failed"
            del self.producers[held.number]
        self._success(fields["request"])

    def _send(self, fields: dict[str, Any], size: int) -> None:
        number, held = fields["id"], self.producers.get(fields["id"])
        messages = fields.get("messages", 1)
        if held is None or held.state != "created":
            if number in self._recently_closed:
                count(self.ignored, "", messages, size)
            else:
                self.closed_for = "a SEND of a producer that is not ready"
        elif held.is_closing:
            count(self.ignored, "", messages, size)
            fields_of = [(1, number), (2, fields["sequence"]), (3, c.METADATA_ERROR), (4, "Producer is closed")]
            self.out.append(command(c.SEND_ERROR, fields_of))
        else:
            count(self.persisted, held.place[0], messages, size)
            self.out.append(command(c.SEND_RECEIPT, [(1, number), (2, fields["sequence"]), (3, [(1, 1), (2, 1)])]))

    # ---- consumers

    def _subscribe(self, fields: dict[str, Any]) -> None:
        place = (full_name(fields["topic"]), fields["subscription"], fields.get("name", ""))
        held = Held(c.SUBSCRIBE, fields["id"], place, fields["request"])
        before = self.consumers.setdefault(held.number, held)
        if before is held:
            self.tasks.append(Task("create", held, held.request))
        elif before.state == "creating":
            self._error(held.request, c.SERVICE_NOT_READY, "Consumer is already present on the connection")
        elif before.state == "failed":
            self._error(held.request, c.SERVICE_NOT_READY, "Consumer that failed is already present on the connection")
        else:
            self._success(held.request)

    def _close_consumer(self, fields: dict[str, Any]) -> None:
        held = self.consumers.get(fields["id"])
        if held is not None and held.state == "created":
            del self.consumers[held.number]
            self.tasks.append(Task("stale", held, NO_REQUEST))
        elif held is not None:
            held.state = "failed"
        self._success(fields["request"])

    def _later(self, fields: dict[str, Any], kind: str) -> None:
        held = self.consumers.get(fields["id"])
        if held is None or held.state != "created":
            self._error(fields["request"], c.METADATA_ERROR, "Consumer not found")
        else:
            self.tasks.append(Task(kind, held, fields["request"]))

    def _flow(self, fields: dict[str, Any]) -> None:
        if not 0 < fields["permits"] < MOST_PERMITS:
            self.closed_for = "permits that make no sense"
        held = self.consumers.get(fields["id"])
        if held is not None and held.state == "created":
            held.permits += fields["permits"]

    def deliver(self, held: Held, messages: int, size: int) -> None:
        """Write one entry of so many messages to a consumer that has permits."""
        if held.permits <= 0 or held.state != "created" or self.consumers.get(held.number) is not held:
            return
        held.permits -= messages
        entry = len(self.delivered)
        self.delivered[entry] = held.place[0], messages
        self.out.append(message_frame(held.number, entry, messages, size))

    # ---- what it does later

    def complete(self, task: Task, outcome: int) -> None:
        """Do it now; of the ways in which it may turn out, `outcome` is one, 0 the usual."""
        if task.what == "create" and task.held.waits and outcome == 1:
            task.held.waits = False
            self._producer_success(task.request, task.held, is_ready=False)  # also if it was closed meanwhile
            return
        self.tasks.remove(task)
        getattr(self, f"_end_{task.what}")(task, outcome)

    def _end_authorize(self, task: Task, outcome: int) -> None:
        if outcome == 2:
            self._error(task.request, c.AUTHORIZATION_ERROR, "not authorized")
        else:
            self._claim(task.held)

    def _end_create(self, task: Task, outcome: int) -> None:
        held, of = task.held, self._map_of(task.held)
        if held.state == "failed":  # it was closed meanwhile, and its creation has no answer
            self._remove(held)
        elif outcome == 2:
            held.state = "failed"
            self._error(task.request, c.PRODUCER_BUSY, "somebody else has it")
            self._remove(held)
        elif held.is_unmade:
            self._answer_created(task)
            self._remove(held)
            if held.kind == c.PRODUCER:
                self._recently_closed.add(held.number)
        else:
            assert of[held.number] is held
            held.state = "created"
            if outcome == 1:  # other commands are handled before another thread has written that
                self.tasks.append(Task("answer", held, task.request))
            else:
                self._answer_created(task)

    def _end_answer(self, task: Task, _outcome: int) -> None:
        self._answer_created(task)

    def _end_close(self, task: Task, _outcome: int) -> None:
        self._success(task.request)
        self._remove(task.held)
        if not any(each.held is task.held for each in self.tasks):
            self.tasks.append(Task("stale", task.held, NO_REQUEST))

    def _end_stale(self, task: Task, outcome: int) -> None:
        """Its end may have begun on another thread when the client's own close came, however late it is written."""
        if outcome != 0:
            self._tell_closed(task.held)

    def _end_unsubscribe(self, task: Task, outcome: int) -> None:
        if outcome == 2:
            self._error(task.request, c.METADATA_ERROR, "others are connected")
            return
        self._remove(task.held)
        self._success(task.request)

    def _end_seek(self, task: Task, outcome: int) -> None:
        if outcome == 2:
            self._error(task.request, c.METADATA_ERROR, "cannot seek")
            return
        if outcome != 1 and self.consumers.get(task.held.number) is task.held:
            self.close(task.held)
        self._success(task.request)

    def close(self, held: Held) -> None:
        """The broker closes a producer or consumer: its topic is unloaded, say."""
        if self._map_of(held).get(held.number) is not held or held.is_unmade:
            return
        if held.state == "creating":
            held.is_unmade = True
        else:
            self._remove(held)
        self._tell_closed(held)

    def _tell_closed(self, held: Held) -> None:
        kind = c.CLOSE_PRODUCER if held.kind == c.PRODUCER else c.CLOSE_CONSUMER
        self.out.append(command(kind, [(1, held.number), (2, NO_REQUEST)]))
        if held.kind == c.PRODUCER:
            self._recently_closed.add(held.number)

    def _get_last_message_id(self, fields: dict[str, Any]) -> None:
        held = self.consumers.get(fields["id"])
        if held is None or held.state != "created":
            self._error(fields["request"], c.METADATA_ERROR, "Consumer not found")
        else:
            self.out.append(command(c.GET_LAST_MESSAGE_ID_RESPONSE, [(1, [(1, 1), (2, 1)]), (2, fields["request"])]))

    def _ack(self, fields: dict[str, Any]) -> None:
        if "request" in fields and fields["id"] in self.consumers:
            self.out.append(command(c.ACK_RESPONSE, [(1, fields["id"]), (6, fields["request"])]))

    def _answer_created(self, task: Task) -> None:
        if task.held.kind == c.PRODUCER:
            self._producer_success(task.request, task.held)
        else:
            self._success(task.request)

    def _producer_success(self, request: int, held: Held, *, is_ready: bool = True) -> None:
        if not held.place[2]:
            self._names += 1
            held.place = (*held.place[:2], f"standalone-0-{self._names}")
        fields: FieldList = [(1, request), (2, held.place[2])]
        self.out.append(command(c.PRODUCER_SUCCESS, fields if is_ready else [*fields, (6, 0)]))

    # ---- the maps

    def _map_of(self, held: Held) -> dict[int, Held]:
        return self.producers if held.kind == c.PRODUCER else self.consumers

    def _remove(self, held: Held) -> None:
        if self._map_of(held).get(held.number) is held:
            del self._map_of(held)[held.number]


_HANDLERS: dict[int, Callable[[ModelBroker, dict[str, Any]], None]] = {
    c.PRODUCER: ModelBroker._producer,
    c.SUBSCRIBE: ModelBroker._subscribe,
    c.CLOSE_PRODUCER: ModelBroker._close_producer,
    c.CLOSE_CONSUMER: ModelBroker._close_consumer,
    c.UNSUBSCRIBE: partial(ModelBroker._later, kind="unsubscribe"),
    c.SEEK: partial(ModelBroker._later, kind="seek"),
    c.FLOW: ModelBroker._flow,
    c.ACK: ModelBroker._ack,
    c.LOOKUP: ModelBroker._look_up,
    c.PARTITIONED_METADATA: ModelBroker._count_partitions,
    c.GET_TOPICS: ModelBroker._list_topics,
    c.GET_LAST_MESSAGE_ID: ModelBroker._get_last_message_id,
    c.CONSUMER_STATS: ModelBroker._refuse,
    c.GET_SCHEMA: ModelBroker._refuse,
    c.NEW_TXN: ModelBroker._refuse,
    c.WATCH_CLOSE: ModelBroker._accept,
    c.PING: ModelBroker._pong,
    **dict.fromkeys((c.PONG, c.REDELIVER, *c.OTHERS), ModelBroker._ignore),
}
