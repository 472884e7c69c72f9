"""`python -m demo`: exit code 0 only if every check held."""

import argparse
import signal
import sys

from rich.console import Console
from rich.markup import escape

from demo.processes import DemoError
from demo.stage import HERE, OUT, Demo, DemoPlan
from demo.verdict import Check, verdict_line

INTERRUPTED = 130


def main() -> int:
    """Run the demo; returns the exit code."""
    # SIGTERM ends the demo and its processes, as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    try:
        checks = Demo(_plan(), console).run(lambda checks: _tell(console, checks))
    except DemoError as error:
        console.print(escape(str(error)), soft_wrap=True, highlight=False)
        return _end(console, f"VERDICT: FAILED: {str(error).splitlines()[0]}", 1)
    except KeyboardInterrupt:
        return _end(console, "VERDICT: FAILED: interrupted", INTERRUPTED)
    return 0 if _hold(checks) else 1


def _plan() -> DemoPlan:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Sluice at work, end to end.")
    parser.add_argument("--broker", choices=("standin", "real"), default="standin", help="default: standin")
    parser.add_argument("--seconds", type=_seconds, default=30.0, help="of load, 5 to 600 (default: 30)")
    parser.add_argument("--hold", action="store_true", help="then go on until Ctrl-C, with the console to look at")
    arguments = parser.parse_args()
    return DemoPlan(arguments.broker, arguments.seconds, holds=arguments.hold)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 5 <= seconds <= 600:
        raise ValueError(text)
    return seconds


def _hold(checks: list[Check]) -> bool:
    return bool(checks) and all(check.holds for check in checks)


def _tell(console: Console, checks: list[Check]) -> None:
    for check in checks:
        _show(console, check)
    _end(console, verdict_line(checks), 0 if _hold(checks) else 1)


def _show(console: Console, check: Check) -> None:
    mark = "[green]holds [/green]" if check.holds else "[red]FAILED[/red]"
    console.print(f"   {mark} {escape(check.name)}: {escape(check.detail)}", soft_wrap=True, highlight=False)


def _end(console: Console, verdict: str, code: int) -> int:
    console.print(f"Logs, counts and the access log: {OUT.relative_to(HERE.parent)}/", highlight=False)
    console.print(
        verdict, style="bold green" if code == 0 else "bold red", soft_wrap=True, highlight=False, markup=False
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
