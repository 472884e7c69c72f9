from proxy.observe.connection import Connection


def test_a_connection_is_in_its_handshake_until_it_is_told():
    connection = Connection(7)
    assert (connection.role, connection.broker, connection.client_address) == ("handshake", "", "")
    assert connection.client_role == ""
