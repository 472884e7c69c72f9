"""Changes of every kind in any order, other files and restarts, beside a plain model: rest over global over dynamic
over file, a little at once or much.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from limiter.levels import Setting
from limiter.policies import Policies, PolicyTarget, Value
from limiter.token_bucket import Direction, Limit, Mode, rate
from proxy.policies import service as module
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, kept_as_own, kept_as_pulsar_s
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.state import to_set_direction, to_set_numbers, to_take_back_direction
from proxy.policies.store import Store
from tests.examples import examples
from tests.proxy.policies.layered import ANN, ORDERS

_TOPIC: PolicyTarget = ("publish", Setting.TOPIC, ORDERS)
_BROKER: PolicyTarget = ("dispatch", Setting.TOPIC_OF_BROKER, "")
_GROUP: dict[Direction, PolicyTarget] = {
    "publish": ("publish", Setting.RESOURCE_GROUP, "gold"),
    "dispatch": ("dispatch", Setting.RESOURCE_GROUP, "gold"),
}
_KEY_OF_GROUP = PolicyKey(PolicyKind.GROUP, "", "gold")
_PLACES = (_TOPIC, _BROKER, *_GROUP.values())
_MEMBERS = {"tenant": "acme", "namespace": "acme/shop"}
_MODES: dict[str, tuple[Mode, ...]] = {
    "publish": ("enforce", "observe", "reject"),
    "dispatch": ("enforce", "observe"),
}

Said = tuple[int, Mode | None]
"""Messages a second, 0 for no limit; the mode, None for the file's."""
_NUMBERS = st.integers(0, 3)


def _limits(place: PolicyTarget) -> st.SearchStrategy[Said]:
    return st.tuples(st.integers(1, 3), st.sampled_from(_MODES[place[0]]))


@dataclass
class File:
    """What a configuration file says."""

    limits: Mapping[PolicyTarget, Said] = field(default_factory=dict)
    attached: Mapping[str, str] = field(default_factory=dict)
    names: bool = False

    def groups(self) -> frozenset[str]:
        limits_it = any(place in self.limits for place in _GROUP.values())
        return frozenset({"gold"} if self.names or limits_it or "gold" in self.attached.values() else ())

    def policies(self) -> FilePolicies:
        values = {place: Value(_limit(*limit), "file") for place, limit in self.limits.items()}
        of = {member: {_MEMBERS[member]: group} for member, group in self.attached.items()}
        return FilePolicies(values, of.get("tenant", {}), of.get("namespace", {}), self.groups())


_FILES = st.builds(
    File,
    st.fixed_dictionaries({}, optional={place: _limits(place) for place in _PLACES}),
    st.dictionaries(st.sampled_from([*_MEMBERS]), st.just("gold")),
    st.booleans(),
)


def _limit(messages: int, mode: Mode | None) -> Limit:
    return Limit(rate(messages), mode=mode or "enforce") if messages else Limit()


class AnyOrder(RuleBasedStateMachine):
    """What holds is what the model says, whatever came before."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(None)
        self.runner = asyncio.Runner()
        self.file = File()
        self.said: dict[tuple[Layer, PolicyTarget], Said] = {}
        self.attached: dict[str, str] = {}
        self.has_group = False
        self.at_once = mock.patch.object(module, "LAID_AT_ONCE", 100)
        self.at_once.start()
        self.restart()

    def teardown(self) -> None:
        self.at_once.stop()
        self.runner.close()
        self.store.close()

    @initialize(most=st.sampled_from([0, 1, 100]))
    def lay_so_many_at_once(self, most: int) -> None:
        self.at_once.stop()
        self.at_once = mock.patch.object(module, "LAID_AT_ONCE", most)
        self.at_once.start()

    @rule()
    def restart(self) -> None:
        self.policies = Policies()
        self.service = PolicyService(
            self.policies, self.file.policies(), self.store, Around(lambda: (0, 0), lambda _changes, _now: None)
        )

    @rule(file=_FILES)
    def read_another_file(self, file: File) -> None:
        self.file = file
        self.runner.run(self.service.take_file(file.policies(), lambda _: None, lambda _seen, _at_ns: None))

    @rule(topic=st.none() | _NUMBERS, everywhere=st.none() | _NUMBERS, broker=st.none() | st.none() | _NUMBERS)
    def set_numbers(self, topic: int | None, everywhere: int | None, broker: int | None) -> None:
        """Pulsar's tools, three places at once; None takes back."""
        self._change(
            {
                rate_key(*_TOPIC): None if topic is None else kept_as_pulsar_s(PublishRate(topic)),
                rate_key(*_TOPIC, Layer.GLOBAL): None
                if everywhere is None
                else kept_as_pulsar_s(PublishRate(everywhere)),
                rate_key(*_BROKER): None if broker is None else kept_as_pulsar_s(DispatchRate(broker)),
            }
        )
        self._say((Layer.REST, _TOPIC), topic)
        self._say((Layer.GLOBAL, _TOPIC), everywhere)
        self._say((Layer.REST, _BROKER), broker)

    @rule(limit=_limits(_TOPIC))
    def set_in_the_own_form(self, limit: Said) -> None:
        self._change({rate_key(*_TOPIC): kept_as_own({"messages": limit[0], "mode": limit[1]})})
        self.said[Layer.REST, _TOPIC] = limit

    @rule(messages=st.none() | _NUMBERS)
    def set_dynamically(self, messages: int | None) -> None:
        key = PolicyKey(PolicyKind.DYNAMIC, "", "dispatchThrottlingRatePerTopicInMsg")
        self._change({key: None if messages is None else str(messages)})
        self._say((Layer.DYNAMIC, _BROKER), messages)

    @rule(member=st.sampled_from([*_MEMBERS]), group=st.none() | st.sampled_from(["gold", ""]))
    def attach(self, member: str, group: str | None) -> None:
        self._change({PolicyKey(PolicyKind.ATTACHMENT, member, _MEMBERS[member]): group})
        self.attached.pop(member, None)
        if group is not None:
            self.attached[member] = group

    @rule(publish=st.none() | _NUMBERS, dispatch=st.none() | _NUMBERS)
    def set_numbers_of_the_group(self, publish: int | None, dispatch: int | None) -> None:
        """A group that nobody limited says all; else what is left out stays, and the own form keeps its mode."""
        numbers: dict[Direction, int | None] = {"publish": publish, "dispatch": dispatch}
        body = ResourceGroup(publishRateInMsgs=publish, dispatchRateInMsgs=dispatch)
        is_first = not self.has_group and not any(place in self.file.limits for place in _GROUP.values())
        self._rework(lambda: to_set_numbers(self.service, "gold", body))
        for direction, place in _GROUP.items():
            messages = 0 if is_first and numbers[direction] is None else numbers[direction]
            before, mode = self.said.get((Layer.REST, place), (0, None))
            if messages is not None:
                self.said[Layer.REST, place] = messages, mode if before and messages else None
        self.has_group = True

    @rule(direction=st.sampled_from([*_GROUP]), limit=st.none() | _limits(_BROKER))
    def set_one_direction_of_the_group(self, direction: Direction, limit: Said | None) -> None:
        section = {"messages": limit[0], "mode": limit[1]} if limit else None
        self._rework(lambda: to_set_direction(self.service, "gold", direction, section))
        self.said[Layer.REST, _GROUP[direction]] = limit or (0, None)
        self.has_group = True

    @rule(direction=st.sampled_from([*_GROUP]))
    def take_back_one_direction_of_the_group(self, direction: Direction) -> None:
        self._rework(lambda: to_take_back_direction(self.service, "gold", direction))
        self.said.pop((Layer.REST, _GROUP[direction]), None)
        is_silent = not any((Layer.REST, place) in self.said for place in _GROUP.values())
        if is_silent and (self.file.groups() or "gold" not in self._attached().values()):
            self.has_group = False

    @rule()
    def end_the_group(self) -> None:
        self._change({_KEY_OF_GROUP: None})
        self.has_group = False
        for place in _GROUP.values():
            self.said.pop((Layer.REST, place), None)

    @invariant()
    def the_highest_that_says_something_holds(self) -> None:
        values = {place: self.policies.get(*place) for place in _PLACES}
        held = {place: value.limit if value and value.limit else None for place, value in values.items()}
        assert held == {place: self._expected(place) or None for place in _PLACES}

    @invariant()
    def groups_and_who_is_attached_are_those_that_were_said(self) -> None:
        policies, attached = self.policies, self._attached()
        members = {"tenant": policies.groups_of_tenants, "namespace": policies.groups_of_namespaces}
        for member, name in _MEMBERS.items():
            assert members[member] == ({name: attached[member]} if member in attached else {})
        assert self.service.groups() == {*self.file.groups(), *(["gold"] if self.has_group else [])}

    def _expected(self, place: PolicyTarget) -> Limit:
        file = self.file.limits.get(place)
        for layer in (Layer.REST, Layer.GLOBAL, Layer.DYNAMIC):
            messages, mode = self.said.get((layer, place), (None, None))
            hides_nothing = layer is Layer.REST and not messages and (Layer.GLOBAL, place) in self.said
            if messages is not None and not hides_nothing:
                return _limit(messages, mode or (file[1] if file else None))
        return _limit(*file) if file else Limit()

    def _attached(self) -> dict[str, str]:
        return {**self.file.attached, **self.attached}

    def _say(self, where: tuple[Layer, PolicyTarget], messages: int | None) -> None:
        self.said.pop(where, None)
        if messages is not None:
            self.said[where] = messages, None

    def _change(self, wanted: Mapping[PolicyKey, str | None]) -> None:
        self._rework(lambda: wanted)

    def _rework(self, plan: Callable[[], Mapping[PolicyKey, str | None]]) -> None:
        self.runner.run(self.service.rework(plan, ANN))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(12), stateful_step_count=25, deadline=None)
