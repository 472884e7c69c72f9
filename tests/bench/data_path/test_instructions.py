import argparse
import shutil
import sys

import pytest

from bench.data_path import instructions
from bench.harness import BenchError

ANNOTATED = """\
Profiled target:  python -m sluice
--------------------------------------------------------------------------------
1,500 (100.0%)  PROGRAM TOTALS
--------------------------------------------------------------------------------
Ir                  file:function
1,000 (66.7%)  /build/Python/ceval.c:_PyEval_EvalFrameDefault [/usr/lib/libpython3.11.so.1.0]
   50 ( 3.3%)  /build/Python/Include/object.h:_PyEval_EvalFrameDefault
  200 (13.3%)  /tmp/build/__native.c:CPyDef_walk___varint [/main/deda__mypyc.cpython-311-x86_64-linux-gnu.so]
  150 (10.0%)  ./string/memmove.S:__memmove_avx [/usr/lib/x86_64-linux-gnu/libc.so.6]
  100 ( 6.7%)  ???:___hidden [???]
"""


def test_instructions_are_summed_by_layer_with_inlined_ones():
    assert instructions.layers(ANNOTATED.splitlines()) == {
        "the interpreter": 1050,
        "Sluice, compiled": 200,
        "C library": 150,
        "other": 100,
    }


def test_without_valgrind_it_says_so(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert instructions.main([]) == 1
    assert "install the package valgrind" in capsys.readouterr().err


def test_a_tool_that_fails_is_an_error():
    with pytest.raises(BenchError, match="failed"):
        instructions._run([sys.executable, "-c", "raise SystemExit('no such process')"])


@pytest.mark.parametrize(("error", "reason"), [(KeyboardInterrupt(), "interrupted"), (OSError(28, "full"), "full")])
def test_what_ends_it_is_one_line(monkeypatch, capsys, error, reason):
    def fails():
        raise error

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(instructions, "Native", fails)
    assert instructions.main([]) == 1
    message = capsys.readouterr().err
    assert message.startswith("bench instructions: ")
    assert message.endswith(f"{reason}\n")


@pytest.mark.parametrize("text", ["8", "x", "0x100", "8x-1", "8x0", "1x9999999999", "1x2x3", ""])
def test_a_chunk_has_frames_that_have_bytes(text):
    assert instructions.kind("8x100") == (8, 100)
    with pytest.raises(argparse.ArgumentTypeError, match="FRAMESxBYTES belongs here"):
        instructions.kind(text)
