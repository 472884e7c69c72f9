"""The page about sharing a limit: its tables, its plots and its words."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from fleet.shares import UNBOUNDED, WHOLE, fill
from loadgen.bench.harness import aligned, machine, prose, text_beside
from loadgen.quota_sharing.schemes import SCHEMES, ProposalText, PulsarFormula
from loadgen.quota_sharing.size import FleetCost, FleetScale
from loadgen.quota_sharing.trials import (
    CONVERGING,
    EVENTS,
    TAKEOVER,
    SharingEvent,
    SharingOutcome,
    SharingTrace,
    TrialSetting,
    run,
)

PULSAR, PROPOSAL, SLUICE = SCHEMES
LOSSES = (0.0, 0.2, 0.5)
SIZES = (5, 100)
PAPER_BYTES = 100 * (5000 * 80 + 5000 * 32)
"""PIP-82's own estimate of what 100 brokers with 5,000 namespaces each publish per cycle."""

Outcomes = Mapping[tuple[str, str, int, float], SharingOutcome]
"""By scheme, event, members and loss."""


@dataclass(frozen=True)
class SharingFigures:
    """The figures on the page.

    Attributes:
        outcomes: Of the events.
        streams: Jain's index over the streams, by scheme and loss.
        whole: Messages that passed in a minute at 3/s over four members, by scheme.
        scale: That of the large fleet.
        cost: What it costs.
    """

    outcomes: Outcomes
    streams: Mapping[tuple[str, float], float]
    whole: Mapping[str, int]
    scale: FleetScale
    cost: FleetCost


# ---- PIP-82's worked examples


def proportional(quota: int, usage: Sequence[float]) -> list[float]:
    """Return the limits after one calculation by Pulsar's formula, rounded down as it does."""
    return [PulsarFormula.share(quota, mine, sum(usage)) for mine in usage]


def stolen(quota: int, usage: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Return the limits after one calculation by PIP-82's text."""
    known = dict(enumerate(usage))
    return [ProposalText.share(quota, place, known, limits[place]) for place in known]


def steps_to_even(quota: int, usage: Sequence[float]) -> list[list[float]]:
    """Return the limits, calculation by calculation, by PIP-82's text while all want more, until within 1 %."""
    steps = [list(usage)]
    even = quota / len(usage)
    while max(abs(limit - even) for limit in steps[-1]) > 0.01 * even and len(steps) < 50:
        steps.append(stolen(quota, steps[-1], steps[-1]))
    return steps


def filled(quota: int, wanted: Sequence[float | None]) -> list[float]:
    """Return the shares that Sluice's coordinator grants: of who wants so much, or no end of it (None)."""
    parts = [UNBOUNDED if one is None else round(one * WHOLE / quota) for one in wanted]
    return [share * quota / WHOLE for share in fill(parts, [1] * len(parts))]


def _numbers(values: Sequence[float]) -> str:
    return "/".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in values)


def _examples() -> str:
    used, even = [10, 50, 30], [80, 20]
    lines = [["of 100", "the text", "Pulsar's formula", "Sluice"]]
    margin = [value * 1.01 for value in used]
    lines += [
        ["10/50/30 used: the rest to each", _numbers([20, 60, 40]), "", ""],
        [
            "10/50/30 used: in proportion",
            _numbers([11.11, 55.56, 33.33]),
            _numbers(proportional(100, used)),
            _numbers(filled(100, margin)),
        ],
        [
            "80/20 used, both want more",
            "80/50, later 50/50",
            _numbers(proportional(100, even)),
            _numbers(filled(100, [None, None])),
        ],
        [
            "limits 70/30, 80 and 20 wanted",
            "not under-used",
            _numbers(proportional(100, [70, 20])),
            _numbers(filled(100, [None, 20.2])),
        ],
        [
            "limits 70/30, 70 wanted by each",
            "fair",
            _numbers(proportional(100, [70, 30])),
            _numbers(filled(100, [None, None])),
        ],
    ]
    return aligned(lines)


# ---- Tables


def _cell(values: Sequence[str]) -> str:
    return ", ".join(values) if len(set(values)) > 1 else values[0]


def _settled(outcome: SharingOutcome) -> str:
    return "/".join("never" if value is None else f"{value:.0f}" for value in outcome.settled).replace(
        "never/never", "never"
    )


def _percent(part: float) -> str:
    return f"{part:+.0%}" if part >= 0.0005 else "0"


def table(
    found: SharingFigures, members: int, events: Sequence[SharingEvent], shown: Callable[[SharingOutcome], str]
) -> str:
    """Return a table of one figure: a line for each event, a column for each scheme, a value for each loss."""
    losses = [loss for loss in LOSSES if (SLUICE, events[0].name, members, loss) in found.outcomes]
    at = ", ".join(f"{loss:.0%}" for loss in losses)
    lines = [[f"{members} members; lost: {at}", "Pulsar", "PIP-82", SLUICE]]
    for event in events:
        lines.append([event.name])
        for name in SCHEMES:
            lines[-1].append(_cell([shown(found.outcomes[name, event.name, members, loss]) for loss in losses]))
    return aligned(lines)


@dataclass(frozen=True)
class GoalLine:
    """A goal, and what was measured."""

    name: str
    goal: str
    measured: str
    is_met: bool


def goals(found: SharingFigures) -> list[GoalLine]:
    """Return the goals of the design, and what was measured."""
    of = found.outcomes

    def worst(events: Sequence[SharingEvent], loss: float, figure: Callable[[SharingOutcome], float | None]) -> float:
        values = [
            figure(of[SLUICE, event.name, members, loss])
            for event in events
            for members in SIZES
            if (SLUICE, event.name, members, loss) in of
        ]
        return max([float("inf") if value is None else value for value in values])

    def cycles(loss: float, which: int, most: int) -> GoalLine:
        value = worst(CONVERGING, loss, lambda one: one.settled[which])
        met = sum(worst([event], loss, lambda one: one.settled[which]) <= most for event in CONVERGING)
        said = "never" if value == float("inf") else f"{value:.0f}"
        name = f"cycles to within {(10, 5)[which]} %" + (f", {loss:.0%} lost" if loss else "")
        return GoalLine(name, f"≤ {most}", f"{said}; {met} of {len(CONVERGING)} events hold it", value <= most)

    every = (*EVENTS, TAKEOVER)
    above = max(worst(every, loss, lambda one: one.above) for loss in LOSSES[:2])
    half = worst(every, LOSSES[2], lambda one: one.above)
    named = {event.name: event for event in every}
    killed, left = named["one is killed"], named["one leaves"]
    fair = -worst(EVENTS, 0.0, lambda one: -one.jain)
    soon = -worst(every, 0.0, lambda one: -one.used[0])
    late = -worst(EVENTS, 0.0, lambda one: -one.used[1])
    streams = found.streams[SLUICE, 0.0]
    reclaim = worst([killed], 0.0, lambda one: one.settled_s)
    leave = worst([left], 0.0, lambda one: one.settled_s)
    disturbed = worst([TAKEOVER], 0.0, lambda one: one.disturbed)
    served = worst([TAKEOVER], 0.0, lambda one: one.settled_s)
    cost = found.cost
    all_mb, few_mb = cost.all.published / 1e6, cost.few.published / 1e6
    member_mb, coordinator_mb = cost.member_bytes / 1e6, cost.coordinator_bytes / 1e6
    return [
        cycles(0.0, 0, 2),
        cycles(0.0, 1, 3),
        cycles(0.2, 0, 4),
        GoalLine("sum above the limit, ≤ 20 % lost", "0", _percent(above), above < 0.0005),
        GoalLine("the same, 50 % lost", "≤ 5 % · k / N", _percent(half), half <= 0.05),
        GoalLine("a killed member's share: used again", "≤ 2.5 s", f"{reclaim:.2f} s", reclaim <= 2.5),
        GoalLine("one that leaves: the same", "≤ 0.5 s", f"{leave:.2f} s", leave <= 0.5),
        GoalLine("takeover: shares disturbed", "0", _percent(disturbed), disturbed < 0.0005),
        GoalLine("takeover: the next event served", "≤ 5 s", f"{served:.2f} s", served <= 5),
        GoalLine("Jain over members", "≥ 0.99", f"{fair:.3f}", fair >= 0.99),
        GoalLine("Jain over the fleet's streams", "≥ 0.99", f"{streams:.3f}", streams >= 0.99),
        GoalLine("used of what could be, 20 cycles", "≥ 0.97", f"{soon:.3f}", soon >= 0.97),
        GoalLine("the same, settled", "≥ 0.99", f"{late:.3f}", late >= 0.99),
        GoalLine("published per cycle, all changed", "≤ 10 MB", f"{all_mb:.2f} MB", all_mb <= 10),
        GoalLine("the same, 1 % changed", "≤ 0.1 MB", f"{few_mb:.3f} MB", few_mb <= 0.1),
        GoalLine("memory of a member", "≤ 1 MB", f"{member_mb:.2f} MB", member_mb <= 1),
        GoalLine("memory of the coordinator", "≤ 50 MB", f"{coordinator_mb:.0f} MB", coordinator_mb <= 50),
    ]


def _goal_table(found: SharingFigures) -> str:
    lines = [["figure", "goal", "Sluice, at worst", ""]]
    lines += [[line.name, line.goal, line.measured, "met" if line.is_met else "missed"] for line in goals(found)]
    return aligned(lines)


def _size_table(found: SharingFigures) -> str:
    cost = found.cost
    lines = [["a cycle in which", "members send", "coordinator sends", "its CPU", "a member's CPU"]]
    for name, cycle in (
        ("nothing changes", cost.idle),
        ("1 % of the demands change", cost.few),
        ("all changes", cost.all),
    ):
        lines.append([name, _bytes(cycle.reports), _bytes(cycle.grants), _ms(cycle.coordinator_s), _ms(cycle.member_s)])
    return aligned(lines)


def _bytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


# ---- Plots


def plots() -> dict[str, str]:
    """Return the plots, by file name: always the same bytes for the same figures."""
    fair, sums = EVENTS[5], EVENTS[0]
    setting = TrialSetting(5, cycles=(40, 24), steps=50)
    alike = {name: run(name, fair, setting) for name in SCHEMES}
    joined = {name: run(name, sums, TrialSetting(5, 0.2, cycles=(40, 24), steps=50)) for name in SCHEMES}
    return {"quota-sharing-alike.svg": _members_plot(alike), "quota-sharing-sum.svg": _sums_plot(joined)}


def _members_plot(traces: Mapping[str, SharingTrace]) -> str:
    """Rates of the members, in parts of an equal part, in a panel for each scheme."""
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    panels = figure.subplots(1, len(traces), sharey=True)
    for axes, (name, trace) in zip(panels, traces.items(), strict=True):
        for place in range(len(trace.ideal)):
            axes.plot(*_line(trace, [rates[place] / trace.ideal[place] for rates in trace.rates]), linewidth=1.2)
        axes.set_title(f"{name} ({trace.cycle_ns / 1e9:g} s)", fontsize=10)
        axes.set_xlabel("cycles")
        axes.axhline(1, color="0.6", linewidth=0.6, zorder=0)
    panels[0].set_ylabel("passed / fair rate")
    return _svg(figure)


def _sums_plot(traces: Mapping[str, SharingTrace]) -> str:
    """The sum of what passes, in parts of the limit."""
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    axes = figure.subplots()
    for (name, trace), style in zip(traces.items(), ("--", "-.", "-"), strict=True):
        axes.plot(*_line(trace, [sum(rates) / trace.quota for rates in trace.rates]), style, linewidth=1.4, label=name)
    axes.axhline(1, color="0.6", linewidth=0.6, zorder=0)
    axes.set_xlabel("cycles since a fifth member joined")
    axes.set_ylabel("passed / limit")
    axes.legend(fontsize=8)
    return _svg(figure)


def _line(trace: SharingTrace, values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The points at which a line bends, and their time in cycles."""
    at = [
        step for step in range(len(values)) if step in {0, len(values) - 1} or len(set(values[step - 1 : step + 2])) > 1
    ]
    return [step * trace.step_ns / trace.cycle_ns for step in at], [round(values[step], 3) for step in at]


def _svg(figure: Figure) -> str:
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "quota-sharing", "font.size": 9}):
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in image.getvalue().splitlines()) + "\n"


# ---- The page


def page(found: SharingFigures) -> str:
    """Return the whole page: the text of `page.md`."""
    every = (*EVENTS, TAKEOVER)
    steps = steps_to_even(100, [80, 20])
    shown = ", ".join(_numbers(step) for step in steps[:5])
    whole = [["3/s over 4 members, 60 s", *SCHEMES], ["messages that passed (180 + 3 + 4 at most)"]]
    whole[1] += [str(found.whole[name]) for name in SCHEMES]
    streams = [["Jain's index over streams; lost: 0%, 20%", *SCHEMES], ["5 members of 1 to 5 streams"]]
    streams[1] += [_cell([f"{found.streams[name, loss]:.3f}" for loss in LOSSES[:2]]) for name in SCHEMES]

    def used(which: int) -> Callable[[SharingOutcome], str]:
        return lambda one: f"{one.used[which]:.2f}"

    text = text_beside(__file__, "page.md").format(
        examples=_examples(),
        steps=shown,
        count=len(steps) - 1,
        goals=_goal_table(found),
        cycles_few=table(found, 5, every, _settled),
        cycles_many=table(found, 100, every, _settled),
        above_few=table(found, 5, every, lambda one: _percent(one.above)),
        above_many=table(found, 100, every, lambda one: _percent(one.above)),
        used_soon=table(found, 5, every, used(0)),
        used_late=table(found, 5, every, used(1)),
        jain=table(found, 5, EVENTS, lambda one: f"{one.jain:.2f}"),
        streams=aligned(streams),
        whole=aligned(whole),
        size=_size_table(found),
        paper=PAPER_BYTES / 1e6,
        members=found.scale.members,
        namespaces=found.scale.namespaces,
        names=found.scale.names,
        holders=found.scale.holders,
        shares=found.scale.members * found.scale.namespaces,
        coordinator_mb=found.cost.coordinator_bytes / 1e6,
        per_share=found.cost.coordinator_bytes / (found.scale.members * found.scale.namespaces),
        all_s=found.cost.all.coordinator_s,
        few_ms=found.cost.few.coordinator_s * 1000,
        all_member_ms=found.cost.all.member_s * 1000,
        idle_kb=found.cost.idle.published / 1000,
        member_mb=found.cost.member_bytes / 1e6,
        member_each=found.cost.member_bytes / found.scale.namespaces,
        delivered_mb=(found.cost.all.reports + found.cost.all.grants * found.scale.members) / 1e6,
        machine=machine(),
    )
    return prose(text) + "\n"
