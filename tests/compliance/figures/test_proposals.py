import os
from pathlib import Path

import pytest

from compliance.figures.what_if import Proposal, ProposalError, read_proposals


def read(tmp_path, text):
    file = tmp_path / "limits.yaml"
    file.write_text(text)
    return read_proposals(file)


def test_limits_are_read(tmp_path):
    text = """
limits:
- {level: topic, name: 'persistent://acme/*', messages: 80}
- {level: tenant, direction: dispatch, bytes: 9}
"""
    assert read(tmp_path, text) == [
        Proposal(level="topic", name="persistent://acme/*", messages=80.0),
        Proposal(level="tenant", direction="dispatch", bytes=9.0),
    ]


def test_proposals_are_read_only_from_a_small_regular_file(tmp_path):
    fifo, large = tmp_path / "fifo", tmp_path / "large"
    os.mkfifo(fifo)
    with large.open("wb") as file:
        file.truncate(2 * 1024**2)
    for path, message in (
        (fifo, "is a device, pipe or folder"),
        (Path("/dev/zero"), "is a device, pipe or folder"),
        (large, "at most 1048576"),
    ):
        with pytest.raises(ProposalError, match=message):
            read_proposals(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits: [", "no valid YAML"),
        ("limits: []", "give 1 to 100"),
        (
            "limits: [{level: topic, message: 3}]",
            "limits[0]: message: this key is not known here; known are level, name,",
        ),
        ("limits: [{level: topic, messages: fast}]", "limits[0].messages: 'fast': a number of messages or"),
        (
            "limits: [{level: topic, bytes: 30/min}]",
            "limits[0].bytes: '30/min': a number of messages or bytes per second",
        ),
        ("limits: [{level: topic, messages: yes}]", "limits[0].messages: 'yes': a number"),
        ("limits: [{level: 3, messages: 3}]", "limits[0]: level: '3' is none of"),
        ("limits: [{level: [3], messages: 3}]", "limits[0].level: ['3']: text belongs here"),
        ("limits: [{messages: 3}]", "limits[0]: level: this key must be given here"),
        ("limits: [3]", "limits[0]: '3': a section of keys, as {level: topic, messages: 80}, belongs here"),
        (
            "limits: {a: 1}",
            "limits: {'a': '1'}: a list of proposed limits, as [{level: topic, messages: 80}], belongs here",
        ),
        ("limit: []", "limit: this key is not known here; known are limits"),
        ("", "yaml: None: a section of keys"),
        ("limits: [{1: topic}]", "limits[0]: 1: this key is not known here"),
        (
            "limits: [{level: group, messages: 3}]",
            "limits[0]: level: 'group' is none of proxy, tenant",
        ),
        ("limits: [{level: topic, direction: both, messages: 3}]", "neither publish nor dispatch"),
        ("limits: [{level: topic}]", "give at least one of them"),
        ("limits: [{level: topic, messages: 0}]", "messages: give a number above 0"),
        ("limits: [{level: topic, messages: nan}]", "messages: give a number above 0"),
        ("limits: [{level: topic, messages: 3, burst_bytes: 3}]", "there is no limit of bytes"),
    ],
)
def test_what_does_not_fit_is_named_with_file_and_place(tmp_path, text, message):
    with pytest.raises(ProposalError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"--what-if {tmp_path}/limits.yaml: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ProposalError, match=r"nowhere\.yaml: cannot be read: No such file"):
        read_proposals(tmp_path / "nowhere.yaml")
