"""A worker's engine: what sessions use, with its limits elsewhere."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from limiter.levels import Client, Topic
from limiter.limiter import Answering, Entry, Stream
from limiter.workers.deputy import Deputy
from limiter.workers.far_permits import FarPermits
from proxy.config.model import Config
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.session.engine import Engine
from proxy.session.session_admission import SessionAdmission
from proxy.session.transport import PeerTransport
from proxy.workers.far_admission import FarAdmission, FarSessionAdmission


class FarRegistry:
    """Where streams begin and end: an `Enrolment`.

    Args:
        deputy: Whom that is told.
    """

    def __init__(self, deputy: Deputy) -> None:
        self._deputy = deputy
        self._owing: set[str] = set()

    def open(self, stream: Stream, topic: Topic, now: int, client: Client) -> None:  # noqa: ARG002 - as Enrolment
        """A stream of `topic` begins."""
        whose = stream.connection
        assert isinstance(whose, Connection), "streams of a worker belong to its connections"
        told = (whose.connection_id, whose.client_address, whose.client_version, whose.client_role, whose.is_tls)
        self._deputy.open(stream, topic.full, told)

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """A stream that has been opened is a consumer."""
        stream.permits = FarPermits(stream, self._deputy)
        self._deputy.meter(stream, grant)

    def answer(self, stream: Stream, answering: Answering) -> None:
        """A stream that has been opened is a producer."""
        self._deputy.answer(stream, answering)

    def name(self, stream: Stream, producer_name: str, now: int) -> None:  # noqa: ARG002 - as Enrolment
        """The broker accepted a producer, and perhaps named it."""
        if stream.name.producer_name != producer_name:
            stream.name = replace(stream.name, producer_name=producer_name)
            self._deputy.name(stream, producer_name)

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit."""
        self._deputy.when_decided(streams, then)

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """A stream ends. Gives back what it held."""
        stream.is_open = False
        return self._deputy.close(stream, now)

    def owes(self, address: str, *, too_much: bool) -> None:
        """The supervisor says so of clients at an address."""
        (self._owing.add if too_much else self._owing.discard)(address)

    def owes_too_much(self, address: str, now: int) -> bool:  # noqa: ARG002 - as Enrolment
        """Whether the supervisor has said so."""
        return address in self._owing


class FarEngine(Engine):
    """The parts of a worker that outlive a session.

    Args:
        config: A worker's own part of it; without limits and blocks, which come from the supervisor.
        counters: What the data path counts into.
        deputy: The gate.
        far: Who asks whether somebody may come in.
    """

    registry: FarRegistry

    def __init__(self, config: Config, counters: Counters, deputy: Deputy, far: FarAdmission) -> None:
        super().__init__(config, counters)
        self.registry = FarRegistry(deputy)
        self.rate_limiter = deputy
        self._far = far

    def session_admission(self, connection: Connection, client: PeerTransport) -> SessionAdmission:
        """What a session asks whether its client, its lookups and its streams may come in."""
        return FarSessionAdmission(self._far, connection, self.rejects, client)


def share_of(config: Config, index: int) -> Config:
    """One worker's part of what all may do together: what is counted is divided, so that the sum is what is configured.

    Args:
        config: Of all.
        index: Which worker, from 0.
    """

    def share(whole: int) -> int:
        return max(1, whole // config.workers + (index < whole % config.workers))

    publish = config.publish.model_copy(update={"hold_total": share(config.publish.hold_total)})
    lookups = share(config.max_lookups_in_flight)
    memory = config.client_memory.model_copy(update={"total": share(config.client_memory.total)})
    return config.model_copy(update={"max_lookups_in_flight": lookups, "publish": publish, "client_memory": memory})
