"""The command `outboard`: where it is, and what it says."""

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional


class Error(RuntimeError):
    """What went wrong, and what to do about it."""

    def __init__(self, message: str, code: Optional[str] = None):
        super().__init__(message)
        self.code = code


def find() -> str:
    """The command of the installation that this module is part of, else the one of this interpreter, else the one in PATH."""
    # PREFIX/lib/outboard/python/outboard/_command.py
    above = Path(__file__).resolve().parents
    candidates = [above[4] / "bin/outboard"] if above[1].name == "python" and above[2].name == "outboard" else []
    candidates += [Path(folder) / "outboard" for folder in _script_folders()]
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return str(candidate)
    found = shutil.which("outboard")
    if found:
        return found
    raise Error("the command `outboard` is not installed: install it, or add the folder that holds it to PATH")


def _script_folders() -> Iterable[str]:
    for scheme in (None, f"{os.name}_user"):
        folder = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        if folder:
            yield folder


def ask(arguments: List[str], environment: Optional[Mapping[str, str]] = None) -> Any:
    """What the command answers in JSON."""
    command = [find(), *arguments]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    except OSError as error:
        raise Error(f"cannot start {command[0]}: {error}") from None
    said = ended.stderr.decode(errors="replace")
    if ended.returncode != 0:
        raise _failure(said or f"{command[0]} ended with status {ended.returncode} and said nothing")
    try:
        return json.loads(ended.stdout)
    except ValueError:
        raise Error(f"{command[0]} answers in a way that this module does not understand: install the same release of both") from None


def _failure(said: str) -> Error:
    """The error of the command as one paragraph: `Error: OB0101`, a sentence behind a mark, the help."""
    code = re.search(r"\bOB\d{4}\b", said)
    text = re.sub(r"\s*`outboard explain OB\d{4}` says more\.\s*", "", said)
    text = re.sub(r"^Error: OB\d{4}\s*", "", text)
    text = re.sub(r"\s*\n\s*[│|]?\s*", " ", text.strip())
    text = re.sub(r"^×\s*", "", text).replace(" help: ", "; ")
    if not code:
        return Error(text)
    return Error(f"{text} [{code.group()}; `outboard explain {code.group()}` says more]", code.group())


def flags(
    server: Optional[str] = None,
    context: Optional[str] = None,
    token_file: Optional[str] = None,
    fingerprint: Optional[str] = None,
    token: Optional[str] = None,
) -> List[str]:
    """As the command takes them; the token goes another way."""
    if context is not None and server is not None:
        raise Error("a context names a server, and so does `server`: leave one of them out")
    if context is not None and token is not None:
        raise Error("a context has its own token: leave out `token`, or name the server")
    named = {"--server": server, "--context": context, "--token-file": token_file, "--tls-fingerprint": fingerprint}
    return [f"{flag}={os.fspath(value)}" for flag, value in named.items() if value is not None]


def with_token(token: Optional[str]) -> Dict[str, str]:
    """This process's environment, and in it the token if there is one: a command line is for everybody to read."""
    environment = dict(os.environ)
    if token is not None:
        environment["OUTBOARD_TOKEN"] = token
    return environment


def devices(
    server: Optional[str] = None,
    *,
    token: Optional[str] = None,
    context: Optional[str] = None,
    token_file: Optional[str] = None,
    fingerprint: Optional[str] = None,
) -> List[Dict[str, Any]]:
    """The devices of a server, each as `outboard devices --json` describes it: `index`, `name`, `memory_bytes` and so on.

    Without a server it is the one of `connect`, of `OUTBOARD_SERVER`, or of the configuration, else this machine.
    """
    arguments = ["devices", "--json", *flags(server, context, token_file, fingerprint, token)]
    return ask(arguments, with_token(token))["devices"]
