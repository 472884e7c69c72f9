"""The first values of a type are read by several threads at once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROUNDS = 300
THREADS = 8
CODE = """
import sys, threading
import msgspec
from proxy import typed_json
sys.setswitchinterval(1e-6)
decode = DECODE
for number in range(ROUNDS):
    inner = msgspec.defstruct("Inner", [(name, list[tuple[int, int]], []) for name in "abcdef"])
    outer = msgspec.defstruct("Outer", [(name, dict[str, inner], {}) for name in "abcdef"])
    together = threading.Barrier(THREADS)
    found = []
    def read():
        together.wait()
        found.append(decode(b'{"a": {"x": {"b": [[1, 2]]}}}', outer).a["x"].b)
    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [[(1, 2)]] * THREADS, found
"""


def ended(decode: str) -> int:
    code = CODE.replace("DECODE", decode).replace("ROUNDS", str(ROUNDS)).replace("THREADS", str(THREADS))
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode


def test_threads_that_read_the_first_value_of_a_type_get_it() -> None:
    assert ended("typed_json.decode") == 0


@pytest.mark.on_request
def test_msgspec_still_needs_decoders_made_one_by_one() -> None:
    assert ended("lambda text, kind: msgspec.json.decode(text, type=kind)") != 0


def test_the_proxy_makes_decoders_in_one_place() -> None:
    typed = re.compile(r"msgspec\.json\.decode\([^\n]*type=")
    names = [path.name for path in (ROOT / "proxy").rglob("*.py") if typed.search(path.read_text())]
    assert names == []
