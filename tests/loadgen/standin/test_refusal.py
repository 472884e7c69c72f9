from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import ServerError


def test_a_refusal_carries_what_the_client_is_told():
    refused = Refused(ServerError.ProducerBusy, "taken")
    assert (refused.error, refused.message, str(refused)) == (ServerError.ProducerBusy, "taken", "taken")
