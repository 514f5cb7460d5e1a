"""Runs one command with a limit, its output in files."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Outcome:
    """How a run ended."""

    code: int | None  # None: it ran past its limit
    seconds: float
    stdout: str
    stderr: str
    complaint: str = ""  # what is wrong with a run that ended with 0

    @property
    def ended(self) -> str:
        if self.code is None:
            return "timeout"
        if self.code < 0:
            return signal.Signals(-self.code).name
        if self.code == 0:
            return self.complaint or "ok"
        return f"exit {self.code}"

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.complaint


def run(command: list[str], log: Path, env: dict[str, str], cwd: Path, limit: float) -> Outcome:
    """Runs it to its end or the limit, then ends whatever is left of its process group. Its output is in `log`.out and .err."""
    out, err = log.with_name(f"{log.name}.out"), log.with_name(f"{log.name}.err")
    started = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(127, 0, "", f"cannot start {command[0]}: {error}")
        code: int | None
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(child.pid)
            child.wait()
    seconds = time.monotonic() - started
    return Outcome(code, seconds, read(out), read(err))


def end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def read(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")
