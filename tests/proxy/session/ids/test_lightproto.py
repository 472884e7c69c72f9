"""How brokers read commands; `tests/real/test_lightproto.py` holds the same against their own reader."""

from random import Random

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandProducer
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.adversary import KINDS, Said, fields_of
from tests.proxy.session.ids.forms import FORMS
from tests.proxy.session.ids.lightproto import Unreadable, command, message, read_command, taken_apart

ASKED = [(1, "t"), (2, 7), (3, 9), (4, "name")]
READ = (c.PRODUCER, {"topic": "t", "id": 7, "request": 9, "name": "name"})


def test_a_command_is_written_as_protobuf_writes_it() -> None:
    written = command(c.PRODUCER, ASKED)
    assert written == encode(CommandProducer(topic="t", producer_id=7, request_id=9, producer_name="name"))
    assert read_command(taken_apart(written)[0], c.SCHEMAS) == READ


def test_the_last_body_replaces_the_former() -> None:
    """Protobuf would merge the two, and keep the name."""
    twice = message([(1, c.PRODUCER), (c.PRODUCER, ASKED), (c.PRODUCER, ASKED[:3])])
    assert read_command(twice, c.SCHEMAS)[1] == {"topic": "t", "id": 7, "request": 9}


@pytest.mark.parametrize("form", ["another body", "unknown fields", "long numbers", "type last", "two types"])
def test_odd_forms_mean_the_same(form: str) -> None:
    assert read_command(FORMS[form](c.PRODUCER, ASKED, []), c.SCHEMAS) == READ


def test_the_last_number_wins() -> None:
    decoy = [(1, "other"), (2, 8), (3, 10)]
    assert read_command(FORMS["scalars twice"](c.PRODUCER, ASKED, decoy), c.SCHEMAS) == READ


def test_a_number_is_cut_to_its_width() -> None:
    fields = [(1, "t"), (2, 1), (3, 9)]
    assert read_command(FORMS["above 64 bits"](c.PRODUCER, fields, []), c.SCHEMAS)[1]["id"] == 1


def test_without_a_required_field_it_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="topic"):
        read_command(FORMS["field missing"](c.PRODUCER, ASKED, []), c.SCHEMAS)


def test_what_a_command_lacks_at_its_end_is_read_behind_it() -> None:
    """No message's length holds its last field back."""
    assert read_command(FORMS["ends early"](c.PRODUCER, ASKED, []), c.SCHEMAS) == READ


def test_a_type_that_is_none_is_none() -> None:
    with pytest.raises(Unreadable):
        read_command(message([(1, 45), (45, [(1, 1)])]), c.SCHEMAS)


@pytest.mark.parametrize("name", KINDS)
def test_everything_that_a_client_says_in_the_usual_form_is_read(name: str) -> None:
    fields = fields_of(Random(1), name)
    kind, read_fields = read_command(taken_apart(Said(name, fields).encoded())[0], c.OF_THE_FUTURE)
    assert kind == KINDS[name]
    assert len(read_fields) >= len(fields) - 1, "all but a CONSUMER_STATS's and WATCH_CLOSE's further fields"
