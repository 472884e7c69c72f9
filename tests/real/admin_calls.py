"""The real pulsar-admin's own code in one JVM for many calls, where a call of the program itself takes 2-3 s."""

import base64
import re
import shlex
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.real.java_programs import java_program

_END_S = 10
_OF_THE_MOMENT = re.compile(r"^\S+ - (\w+) +- \[[^\]]*\] - \[http://[^/]+", re.MULTILINE)
"""Time, thread and address of a line of pulsar-admin's log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended, and what it printed; of its log's lines what does not change from call to call."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.code} {self.out}{self.err}"

    def assert_well(self) -> None:
        """It did what it was told."""
        assert self.code == 0, str(self)

    @property
    def lines(self) -> list[str]:
        """Of what was printed, sorted: a broker shows keys and names in no certain order."""
        return sorted(self.out.splitlines())


class AdminCalls:
    """A small program that starts at once; it ends with its block, or with this process.

    Args:
        log_path: Gets what Java itself has to complain about.
    """

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._one_at_a_time = threading.Lock()
        command = java_program("AdminCalls", "-Xmx192m")
        with ExitStack() as undo, log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
            undo.callback(self._process.kill)
            assert self._process.stdin
            assert self._process.stdout
            self._calls, self._answers = self._process.stdin, self._process.stdout
            undo.pop_all()

    def call(self, admin_url: str, command: str) -> Answer:
        """What `pulsar-admin --admin-url URL COMMAND` does, such as `namespaces get-publish-rate public/default`."""
        with self._one_at_a_time:
            self._calls.write("\t".join([admin_url, *shlex.split(command)]) + "\n")
            self._calls.flush()
            answer = self._answers.readline()
        assert answer.endswith("\n"), self._log_path.read_text()[-4000:]
        code, out, err = answer.rstrip("\n").split("\t")
        return Answer(int(code), _printed(out), _printed(err))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls.close()  # it ends with its input
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._answers.close()


def _printed(text: str) -> str:
    return _OF_THE_MOMENT.sub(r"\1 [", base64.b64decode(text).decode())
