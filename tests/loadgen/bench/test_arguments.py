import argparse

import pytest

from loadgen.bench import arguments


def test_what_belongs_there_is_taken():
    assert arguments.count("3") == 3
    assert arguments.seconds("0.02") == 0.02
    assert arguments.kind("8x100") == (8, 100)


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", "²"])
def test_nothing_can_be_done_less_than_once(text):
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number above 0 belongs here"):
        arguments.count(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "x", ""])
def test_a_time_is_one_that_passes(text):
    with pytest.raises(argparse.ArgumentTypeError, match="seconds belong here"):
        arguments.seconds(text)


@pytest.mark.parametrize("text", ["8", "x", "0x100", "8x-1", "8x0", "1x9999999999", "1x2x3", ""])
def test_a_chunk_has_frames_that_have_bytes(text):
    with pytest.raises(argparse.ArgumentTypeError, match="FRAMESxBYTES belongs here"):
        arguments.kind(text)
