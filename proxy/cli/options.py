"""The options of every command that asks a running proxy: where it is, and what opens its admin address."""

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.exit_codes import ExitCode
from protocol.printable import printable, printable_json

DEFAULT_ADMIN = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """The options as they were given; None for one that was not.

    Args:
        admin: HOST:PORT, or a URL.
        token_file: Holds the token, in one line.
        ca: The authority that signed the proxy's certificate, else the system's authorities.
        cert: The caller's certificate.
        key: Of `cert`, if it is not in the same file.
        plain_http: Whether the token may go to other machines without TLS.
    """

    admin: str = DEFAULT_ADMIN
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    plain_http: bool = False


class AdminLinkError(Exception):
    """A proxy's admin address cannot be reached, or refuses; the text is one line for people.

    Args:
        text: Names address or file, trouble and remedy.
        status: The HTTP status of a refusal in Sluice's form.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends by it; Sluice answers an invalid value with 400."""
        return ExitCode.USAGE if self.status == HTTPStatus.BAD_REQUEST else ExitCode.FAILED


class DisconnectedError(AdminLinkError):
    """The connection was refused, reset or ended within TLS: no process listens there, or it has just ended."""


class CommandLineError(AdminLinkError):
    """The command line has an invalid value; no proxy was asked."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a wrong command line."""
        return ExitCode.USAGE


Admin = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT|URL",
        envvar="SLUICE_ADMIN",
        help="Admin address of the proxy; https://HOST:PORT if it has TLS.",
    ),
]
Admins = Annotated[
    list[str],
    typer.Option(
        "--admin",
        metavar="HOST:PORT|URL",
        envvar="SLUICE_ADMIN",
        help="Admin address of the proxy; https://HOST:PORT if it has TLS; may be given several times.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", envvar="SLUICE_TOKEN_FILE", help="Token for the admin address. Default: none."),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="SLUICE_CA",
        help="PEM certificate of the authority of the admin address's certificate. Default: the system's authorities.",
    ),
]
Cert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", envvar="SLUICE_CERT", help="Client certificate, PEM. Default: none."),
]
CertKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="SLUICE_KEY",
        help="Private key of the client certificate, PEM. Default: in the same file.",
    ),
]
PlainHttp = Annotated[
    bool,
    typer.Option(
        "--plain-http",
        envvar="SLUICE_PLAIN_HTTP",
        help="Send the token even to another machine without TLS, where all on the way can read it.",
    ),
]


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[
    bool,
    typer.Option(
        "-q", "--quiet", help="Print errors only, and the result of --json or of a command that only shows something."
    ),
]


def print_json(result: object) -> None:
    """Print a result as JSON for people and programs alike."""
    typer.echo(printable_json(json.dumps(result, indent=2, ensure_ascii=False)))


_Read = Callable[[dict[str, Any]], Any]


def asks_proxy(command: Callable[..., None], more: Sequence[inspect.Parameter] = ()) -> Callable[..., None]:
    """Give a command these options in place of its parameter `admin: AdminOptions`, and `more` in place of its `**`.

    An AdminLinkError ends the command with its line and its exit code.
    """
    return _asking(command, more, Admin, DEFAULT_ADMIN, lambda given: AdminOptions(**given))


def asks_proxies(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same for a command with `admin: Sequence[AdminOptions]`: `--admin` may be given several times."""

    def each(given: dict[str, Any]) -> list[AdminOptions]:
        return [AdminOptions(admin=address, **given) for address in dict.fromkeys(given.pop("admin"))]

    return _asking(command, (), Admins, [DEFAULT_ADMIN], each)


def _asking(
    command: Callable[..., None], more: Sequence[inspect.Parameter], kind: object, default: object, read: _Read
) -> Callable[..., None]:
    options = (option("admin", default, kind), *_OPTIONS)

    @functools.wraps(command)
    def asking(**given: Any) -> None:
        admin = read({option.name: given.pop(option.name) for option in options})
        try:
            command(admin=admin, **given)
        except AdminLinkError as error:
            typer.echo(f"sluice: {printable(str(error))}", err=True)
            raise typer.Exit(error.exit_code) from None

    own = inspect.signature(command)
    others = [each for each in own.parameters.values() if each.name != "admin" and each.kind is not each.VAR_KEYWORD]
    signature = own.replace(parameters=[*others, *more, *options])
    asking.__signature__ = signature  # type: ignore[attr-defined] # where inspect looks for one
    asking.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return asking


def option(name: str, default: object, kind: object) -> inspect.Parameter:
    """Return an option of a command, of the `kind` that Typer takes."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_OPTIONS = (
    option("token_file", None, TokenFile),
    option("ca", None, Ca),
    option("cert", None, Cert),
    option("key", None, CertKey),
    option("plain_http", default=False, kind=PlainHttp),
)
