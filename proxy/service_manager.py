"""Reports to the service manager that has started this process: that it serves, ends, and still turns.

Source: sd_notify(3), which systemd and others speak: a datagram of lines NAME=VALUE to the socket in NOTIFY_SOCKET.
"""

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog

_MICROSECONDS = 1_000_000


class ServiceManager:
    """The manager of services, if it has asked for reports; else nothing is sent.

    Args:
        environment: NOTIFY_SOCKET names the manager's socket; WATCHDOG_USEC is the longest silence in microseconds,
            asked of the process WATCHDOG_PID.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_asked = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        silence = environment.get("WATCHDOG_USEC", "") if is_asked and address else ""
        self._silence_s = int(silence) / _MICROSECONDS if silence.isdecimal() else 0.0

    def report(self, *lines: str) -> None:
        """Send lines as `READY=1`; a socket that takes none is reported in the operator's log."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            structlog.get_logger().warning("the service manager takes no report", lines=lines, error=str(error))

    async def serving(self) -> None:
        """Report that the process serves, and signs of life from then on; returns at once if none are asked for."""
        self.report("READY=1")
        while self._silence_s:
            await asyncio.sleep(self._silence_s / 3)
            self.report("WATCHDOG=1")

    def replaced(self, process: int) -> None:
        """Report that another process is the main one of the service from now on."""
        self.report(f"MAINPID={process}")

    def ending(self) -> None:
        """Report that the process ends."""
        self.report("STOPPING=1")
