"""What can go wrong around the real broker; each message is one line that names the remedy, then the evidence."""


class RealPulsarError(Exception):
    """A real Pulsar part could not be had, started or run."""


class JarsError(RealPulsarError):
    """The jars are not there and could not be fetched."""


class ProcessFailed(RealPulsarError):
    """A process ended or hung before it had done its work; carries the last lines that it wrote."""

    def __init__(self, message: str, last_lines: str) -> None:
        super().__init__(f"{message}\n{last_lines}" if last_lines else message)
        self.last_lines = last_lines
