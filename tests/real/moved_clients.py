"""Programs in Java, Go and Python with the official clients, which publish and consume until they are ended."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loadgen.real.jars import ProcessFailed
from loadgen.real.process import wait_until
from tests.real.java_programs import java_program
from tests.real.publishers import go_program

KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared", "Reader", "Chunks", "Transactions")
"""The kinds of topics: types of subscriptions, and others."""
PYTHON, JAVA, GO = "python", "java", "go"
OF_LANGUAGES = {PYTHON: KINDS[:-1], JAVA: KINDS, GO: KINDS[:-1]}
"""Those of the program in each language. The client of Python has no transactions; that of Go tells of one that has
failed wherever a connection ends while one is begun or ended."""
STREAMS = {kind: 3 if kind in KINDS[1:4] else 2 for kind in KINDS}
"""The number of producers and consumers of a topic of each kind."""
_OVER_INFO = re.compile(r"\b(WARN|ERROR|level=(?:warning|error))\b")
_OF_UNLOADS = re.compile(
    r'msg="(Connection was closed|receive \d+ messages , all filtered|Consumer not found while active consumer change'
    r'|Got ack ledgerId:\d+ +entryId:\d+ for timed out msg)"'
    r'|msg="\[\w+\] \[s\] Receive a duplicated chunk '
    r'|msg="Failed to write on connection" error="write tcp \S+: use of closed network connection"'
    r"| Received (a chunk whose chunk id is invalid|an uncached chunk) "
)
"""The Go client's warnings about producers that are closed, about messages and chunks that it has acknowledged and gets
once more, about second receipts of messages that it has sent again, and about its own consumers, which it knows only
after the broker's first word on them, as it says them when the broker itself unloads a topic; seldom of a write on
a connection that it has just closed itself. The C++ client's errors about the chunks of a message that it had in part,
and gets once more from the first one on: at a broker's own unload, too."""


_OF_ENDS = re.compile(r'error="(connection closed|server error: ProducerBusy: [^"]*)"')
"""The Go client's errors about a request for a stream that it has sent as its connection ends, which it makes again,
and about the producer that the broker has of that connection for a moment longer."""


class MovedClients:
    """A program of `MovedClients.java`, `moved/main.go` or `moved_python.py`; it ends with the block.

    Args:
        command: The program and its arguments.
        output: A file for what it prints.
    """

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        with output.open("w") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)

    def wait_ready(self) -> None:
        """Return when all streams are open.

        Raises:
            ProcessFailed: If they are not, two minutes later, or the program has ended.
        """
        wait_until(lambda: "ready" in self.printed() or self._process.poll() is not None, 120)
        if "ready" not in self.printed() or self._process.poll() is not None:
            raise ProcessFailed("the clients have not opened their streams", self.printed())

    def printed(self) -> str:
        return self._output.read_text()

    def troubles(self) -> list[str]:
        """The lines of its log above INFO so far, but those that the broker's own unload brings, and any end in Go."""
        lines = (line for line in self.printed().splitlines() if _OVER_INFO.search(line))
        return [line for line in lines if not _OF_UNLOADS.search(line) and not _OF_ENDS.search(line)]

    def late_chunks(self) -> int:
        """The messages in chunks that the C++ client got in part and once more, of which it says that it drops them.

        Each comes behind later ones where the client's connection ends again, and else not at all; at a broker's own
        unloads it was 3 of 60.
        """
        return self.printed().count(" Received a chunk whose chunk id is invalid ")

    def begin_anew(self) -> None:
        """Let `longest` count from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, int]:
        """Let it publish no more, and return its counts: `sent`, `failed`, `lacking`, `twice`, `disordered`, `longest`.

        The last is the longest time until a receipt, in milliseconds.
        """
        self._process.communicate("end\n", timeout=180)
        assert self._process.returncode == 0, self.printed()
        words = self.printed().splitlines()[-1].split()
        return {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}

    def kill(self) -> None:
        with self._process:
            self._process.kill()


def service_url(language: str, addresses: Sequence[str]) -> str:
    """Return the service URL of one address or two; a stream of a Go client takes the next two that are named.

    Source: docs/operating.md, several in the service URL
    """
    of_go = [*(address for address in addresses for _ in range(2)), addresses[-1]]
    named = of_go if language == GO else addresses
    return f"pulsar://{','.join(named)}"


@contextmanager
def moved_clients(
    language: str, url: str, output: Path, kinds: Sequence[str] = KINDS, *, of_client: int = 1, pause_ms: int = 20
) -> Iterator[MovedClients]:
    """Run one, and yield when its streams are open.

    Args:
        language: `java`, `go` or `python`.
        url: The service URL.
        output: A file for what it prints; its name begins the names of the topics.
        kinds: A topic of each kind.
        of_client: Topics of one client.
        pause_ms: Between two messages of a topic.
    """
    match language:
        case "python":
            command = [sys.executable, "-m", "tests.real.moved_python"]
        case "go":
            command = [str(go_program("moved"))]
        case _:
            command = java_program("MovedClients")
    topics = f"persistent://public/default/moved-{output.parent.name}-{output.stem}-"
    numbers = [str(pause_ms), str(of_client)]
    program = MovedClients([*command, url, topics, *numbers, *kinds], output)
    try:
        program.wait_ready()
        yield program
    finally:
        program.kill()
