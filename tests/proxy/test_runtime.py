"""What a process that serves asks of Python and of the C library."""

import os
import shutil
import subprocess
import sys

import pytest

_LARGE_IS_GIVEN_BACK = """
import ctypes, sys
from proxy.runtime import LARGE, SWITCH_S, set_up_runtime

class Kept(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
if ask is None:
    print("no such C library")
    sys.exit()
ask.restype = Kept
set_up_runtime()
bytes(8 * LARGE)  # freed again: from now on glibc, left alone, would take so much from its heap
before = ask().hblks
held = bytes(2 * LARGE)
print(ask().hblks - before, sys.getswitchinterval() == SWITCH_S)
"""

_FREE_IS_GIVEN_BACK = """
import ctypes
from proxy.runtime import give_back_memory, set_up_runtime

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if not hasattr(ctypes.CDLL(None), "malloc_trim"):
    give_back_memory()
    print("no such C library")
    raise SystemExit
set_up_runtime()
copies = [bytes([1]) * 65536 for _ in range(800)]
pin = copies[-1]
most = resident()
del copies
left = resident()
give_back_memory()
print(most - left < 2**20, most - resident() > 40 * 2**20)
"""


_AS_MANY_RESOLVE = """
import asyncio, os, socket, uvloop
from proxy.runtime import RESOLVERS, set_up_runtime

async def threads():
    await asyncio.get_running_loop().getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)
    return len(os.listdir("/proc/self/task"))

set_up_runtime()
print(uvloop.run(threads()) > 2 * RESOLVERS)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux shows them")
def test_as_many_names_are_resolved_at_once_as_are_asked_for() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "UV_THREADPOOL_SIZE"}
    command = [sys.executable, "-c", _AS_MANY_RESOLVE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "True"


def test_large_pieces_of_memory_are_apart_and_threads_let_the_loop_go_on_soon() -> None:
    """In a process of its own, which is not to be changed by that for all other tests."""
    done = subprocess.run([sys.executable, "-c", _LARGE_IS_GIVEN_BACK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {"1 True", "no such C library"}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux shows it")
def test_free_memory_below_some_that_is_used_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _FREE_IS_GIVEN_BACK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {"True True", "no such C library"}


_IS_SCHEDULED = """
import os, sys, threading
from proxy.runtime import be_scheduled

if sys.argv[2] == "forbidden":
    def forbid(*_): raise PermissionError(1, "Operation not permitted")
    os.sched_setscheduler = forbid
elif sys.argv[2] == "idle":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
said, found = be_scheduled(sys.argv[1]), []
thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
names = {os.SCHED_OTHER: "usual", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}
print(names[os.sched_getscheduler(0)], names[found[0]], said)
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policies")
@pytest.mark.parametrize(
    ("scheduling", "before", "after"),
    [
        ("batch", "usual", "batch batch None"),
        ("normal", "usual", "usual usual None"),
        ("batch", "idle", "idle idle None"),
        ("batch", "forbidden", "usual usual [Errno 1] Operation not permitted"),
    ],
)
def test_it_is_scheduled_as_it_is_configured_unless_it_was_started_otherwise(
    scheduling: str, before: str, after: str
) -> None:
    command = [sys.executable, "-c", _IS_SCHEDULED, scheduling, before]
    usual = ["chrt", "--other", "0"] if shutil.which("chrt") else []
    done = subprocess.run([*usual, *command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == after
