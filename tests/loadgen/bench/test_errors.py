from loadgen.bench.errors import last_line


def test_the_reason_is_what_was_said_last():
    assert last_line("starting\n  no such file \n\n") == "no such file"
    assert last_line(" \n") == "it said nothing"
