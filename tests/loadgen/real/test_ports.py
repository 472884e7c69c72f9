import socket

import pytest

from loadgen.real.ports import free_ports


def test_free_ports_are_different_and_nobody_holds_them() -> None:
    ports = free_ports(0, 0, 0)
    assert len(set(ports)) == 3
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    assert free_ports(ports[1], 0)[0] == ports[1]


def test_a_taken_port_is_an_error_that_leaves_the_others_free() -> None:
    (wanted,) = free_ports(0)
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(OSError, match="in use"):
        free_ports(wanted, holder.getsockname()[1])
    socket.create_server(("127.0.0.1", wanted)).close()
