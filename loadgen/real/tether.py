"""Run a command so that it cannot outlive its parent: `python tether.py PARENT_PID COMMAND …`.

The kernel keeps the parent-death signal across exec, so the command itself needs to know nothing. (The same from
Popen's preexec_fn would run Python between fork and exec of a process with threads, which can deadlock.) Linux only;
elsewhere the command just runs. The signal comes when the *thread* that started this ends: start from a lasting one.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arm the signal, check that the parent still lives, become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main()
