"""Whether the process is ready for clients, and whether its brokers answer.

    start, scrape, probe, top … ─▶ BrokerHealth ─▶ sluice_broker_up, `broker_unreachable`, doctor
                                         │
         accepting, draining, states ─▶ Readiness ─▶ /readyz, sluice_ready

All replicas have the same brokers. If an outage of these made each replica not ready, a balancer would take all of them
out at once, with the clients whose brokers are there. So a process that a broker has answered once stays ready, and
says `broker_unreachable` among its degraded states; `admin_access.not_ready_when` may choose otherwise. A process that
no broker has answered yet is not ready, so that a rollout with a wrong address or wrong credentials stops at its first
replica.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from protocol.endpoint import Endpoint
from proxy.admin.shared_work import SharedWork, TooManyWaitError
from proxy.brokers.dialing import write_to
from proxy.brokers.targets import TargetRefusedError
from proxy.checkup import BrokerAnswer
from proxy.degraded import Degraded, DegradedStates
from proxy.drain import DrainService
from proxy.runtime import Tasks
from proxy.session.engine import Engine
from proxy.session.handshake import own_greeting, refuses_credentials, version_in

_PATIENCE_S = 3.0
"""Seconds in which all brokers together have to answer."""
_LOOKS_S = 5.0
"""Seconds for which answers count as the brokers' present state: so often brokers are asked, however many ask."""
_LOOKS_AGAIN_S = 1.0
"""The same where no broker answered."""
_MOMENT_S = 0.5
"""Seconds for which a probe or a scrape waits for brokers that have answered before: probes have a second, by default,
and one that is late counts as not ready."""
_MOST_ANSWER = 4096
"""Bytes of an answer that are looked at: a CONNECTED has 50, an ERROR its reason."""


class BrokerHealth:
    """Asks the configured brokers for their answer to a CONNECT, once for all that want to know.

    An authentication error is an answer, unless Sluice has shown its own credentials, which each client's connection
    needs (`authentication.broker`). Brokers are asked when somebody wants to know, so an idle process has no timer;
    while none answers, they are asked each `_LOOKS_S`, so that the state ends when a broker is back.

    Args:
        engine: Has the brokers and the way to them.
        on_change: Called when the last broker has stopped to answer, and when one answers again.

    Attributes:
        has_answered: Whether a broker has answered since the start.
    """

    def __init__(self, engine: Engine, on_change: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._on_change = on_change
        self._look = SharedWork(self._ask_all, lambda _: _LOOKS_S if self.problem is None else _LOOKS_AGAIN_S)
        self._tasks = Tasks()
        self._answers: dict[str, BrokerAnswer] = {}
        self._again: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self.has_answered = False

    @property
    def problem(self) -> str | None:
        """Why no broker lets clients in, as of the latest answers; None if one does, or none was asked yet."""
        problems = [answer.problem for answer in self._answers.values() if answer.problem is not None]
        return "; ".join(problems) if problems and len(problems) == len(self._answers) else None

    def degraded(self) -> Iterator[Degraded]:
        """Yield the state in which no broker answers."""
        problem = self.problem
        if problem is not None:
            yield Degraded(
                "broker_unreachable",
                f"no client can connect: {problem}",
                "see whether the brokers run, and whether this machine reaches them (`sluice doctor`); their addresses "
                "are the key `broker`",
            )

    def look(self) -> None:
        """Ask every broker in the background, unless that was done just now."""
        if not self._look.is_under_way and not self._is_stopped:
            self._tasks.start(self._looked(), "ask brokers")

    def brokers_changed(self) -> None:
        """Ask the brokers that are configured now; earlier answers are of other ones."""
        self._look.forget()
        self.look()

    async def fresh(self) -> None:
        """Ask every broker, unless that was done just now, and wait for the answers.

        After the first answer since the start, the wait is short: the earlier answers count for a moment more.
        """
        with suppress(TimeoutError, TooManyWaitError):
            await asyncio.wait_for(self._look.get(), _MOMENT_S if self.has_answered else None)

    async def asked(self) -> dict[str, BrokerAnswer]:
        """Ask every broker for a caller that has a place, unless that was done just now; returns the answer of each."""
        return await self._look.get(has_place=True)

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True
        self._tasks.cancel()
        self._forget_timer()

    async def _looked(self) -> None:
        await self._look.get(has_place=True)

    async def _ask_all(self) -> dict[str, BrokerAnswer]:
        while True:
            brokers = tuple(self._engine.targets.brokers)
            answers = {str(broker): await self._ask(broker, _PATIENCE_S / len(brokers)) for broker in brokers}
            if brokers == tuple(self._engine.targets.brokers):  # else a reload came between
                self._take(answers)
                return answers

    def _take(self, answers: dict[str, BrokerAnswer]) -> None:
        before, self._answers = self.problem, answers
        self._forget_timer()
        if self.problem is None:
            self.has_answered = True
        elif not self._is_stopped:
            self._again = asyncio.get_running_loop().call_later(_LOOKS_S, self.look)
        if (before is None) != (self.problem is None) and not self._is_stopped:
            self._on_change()

    def _forget_timer(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def _ask(self, broker: Endpoint, patience_s: float) -> BrokerAnswer:
        began, counters = self._engine.clock(), self._engine.counters
        answer = await self._answer_of(broker, patience_s)
        if broker in self._engine.targets.brokers:  # else a reload has taken it away
            counters.broker_up[str(broker)] = int(answer.problem is None)
            if answer.problem is None:
                counters.broker_round_trip_ns[str(broker)] = self._engine.clock() - began
        return answer

    async def _answer_of(self, broker: Endpoint, patience_s: float) -> BrokerAnswer:
        try:
            answer = await asyncio.wait_for(self._answer(broker, patience_s), patience_s)
        except (OSError, TimeoutError, TargetRefusedError) as error:
            return BrokerAnswer(f"broker {broker} does not answer: {str(error) or 'time over'}")
        if not answer:
            return BrokerAnswer(f"broker {broker} closed the connection without an answer")
        if self._engine.identity is not None and refuses_credentials(answer):
            problem = f"broker {broker} does not accept Sluice's own credentials (authentication.broker)"
            return BrokerAnswer(problem)
        return BrokerAnswer(None, version_in(answer))

    async def _answer(self, broker: Endpoint, patience_s: float) -> bytes:
        """Return the beginning of the broker's answer to a CONNECT with Sluice's credentials."""
        verifier = self._engine.identity
        async with self._engine.dialer.connection(broker, patience_s) as (reader, writer):
            write_to(writer, own_greeting(None if verifier is None else verifier.own))
            return await reader.read(_MOST_ANSWER)


class Readiness:
    """Decides whether balancers are to send clients here: one decision for `/readyz` and `sluice_ready`.

    Args:
        engine: Has the configuration.
        brokers: Asks the brokers.
        drain: Drains the process.
        states: The degraded states.

    Attributes:
        is_accepting: Whether clients are accepted.
    """

    def __init__(
        self,
        engine: Engine,
        brokers: BrokerHealth,
        drain: DrainService | None = None,
        states: DegradedStates | None = None,
    ) -> None:
        self._not_ready_when = engine.config.admin_access.not_ready_when
        self._brokers = brokers
        self._drain = drain
        self._states = states or DegradedStates()
        self.is_accepting = False

    def look(self) -> None:
        """Have the brokers asked in the background, while the process serves."""
        if self._of_process() is None:
            self._brokers.look()

    async def fresh(self) -> None:
        """Have the brokers asked, if the decision depends on their answers."""
        if self._of_process() is None:
            await self._brokers.fresh()

    def problem(self) -> str | None:
        """Return why the process is not ready, by what is known now; None if it is ready."""
        return self._of_process() or self._of_brokers() or self._of_states()

    def _of_process(self) -> str | None:
        draining = None if self._drain is None else self._drain.summary()
        if draining is not None:
            return draining
        return None if self.is_accepting else "not accepting connections"

    def _of_brokers(self) -> str | None:
        if self._brokers.has_answered:
            return None
        never = "no broker has answered since the start"
        problem = self._brokers.problem
        return never if problem is None else f"{problem}; {never}"

    def _of_states(self) -> str | None:
        if not self._not_ready_when:
            return None
        states = (each.state for each in self._states.now())
        return next(
            (
                f"{state.cause}: {state.reason}; {state.remedy}"
                for state in states
                if state.cause in self._not_ready_when
            ),
            None,
        )
