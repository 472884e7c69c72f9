"""Planted logs whose traffic is that of an independent model, several of each kind."""

from datetime import timedelta
from math import ceil

from tests.compliance import model
from tests.compliance.planted import BEGIN, write_file

SEEDS = range(2)


def write_modelled(folder):
    """All of them."""
    for plant in PLANTS:
        for seed in SEEDS:
            plant(folder, seed)


def write_one(folder, log):
    write_file(folder, f"{log.proxy_id}-{log.boot_id}.jsonl", log.encoded())


def over(lines, index, messages):
    """More messages pass in one line: as few as give its worst window that excess."""
    extra = ceil(messages - model.worst_excess(lines, index))
    lines[index].passed += extra
    lines[index].offered += extra


def plain(folder, seed):
    lines, _ = model.simulate(seed)
    model.write_in_three(folder, model.written(f"plain-{seed}", lines))


def batched(folder, seed):
    lines, _ = model.simulate(seed + 100, largest_entry=17)
    write_one(folder, model.written(f"batched-{seed}", lines))


def over_by_one(folder, seed):
    lines, greedy = model.simulate(seed)
    over(lines, greedy + 12, 1)
    write_one(folder, model.written(f"over-{seed}", lines))


def at_the_edge(folder, seed):
    lines, greedy = model.simulate(seed)
    over(lines, greedy + 12, 0)
    assert model.worst_excess(lines, greedy + 12) == 0
    write_one(folder, model.written(f"edge-{seed}", lines))


def starved(folder, seed):
    """Five percent below the limit for three seconds."""
    lines, greedy = model.simulate(seed)
    for line in lines[greedy + 14 : greedy + 17]:
        line.passed -= -(-line.rate // 20)
    write_one(folder, model.written(f"starved-{seed}", lines))


def stepped(folder, seed):
    """The wall clock goes five seconds ahead, in another log thirty back."""
    for name, step_s in (("ahead", 5), ("back", -30)):
        lines, greedy = model.simulate(seed)
        write_one(folder, model.written(f"{name}-{seed}", lines, clock_step=(greedy + 8, step_s)))


def lost_file(folder, seed):
    lines, _ = model.simulate(seed)
    model.write_in_three(folder, model.written(f"lost-{seed}", lines), without=(1,))


def restarted(folder, seed):
    """Two runs, each with a full bucket of its own: together they pass more than one bucket would allow."""
    lines, _ = model.simulate(seed)
    begin = BEGIN + timedelta(seconds=len(lines))
    write_one(folder, model.written(f"restarted-{seed}", lines))
    write_one(folder, model.written(f"restarted-{seed}", lines, boot_id="boot-2", begin=begin))


def changed(folder, seed):
    """The limit is halved within a second; the lines before and behind are each judged by their own value."""
    lines, _ = model.simulate(seed, change_at_ms=370)
    write_one(folder, model.written(f"changed-{seed}", lines))
    lines, greedy = model.simulate(seed, change_at_ms=370)
    over(lines, greedy + 20, 1)
    write_one(folder, model.written(f"changed-over-{seed}", lines))


PLANTS = (plain, batched, over_by_one, at_the_edge, starved, stepped, lost_file, restarted, changed)
