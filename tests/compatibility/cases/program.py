"""What recipes share: they run a program that lies unpacked in a folder, and read what it wrote."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

# With `usr` in it, and the libraries that the program finds before this machine's.
FOLDER = Path(os.environ["COMPAT_PROGRAM"])
LIBRARIES = os.environ["COMPAT_PROGRAM_LIBRARIES"]


def run(*words: object, env: dict[str, str] | None = None) -> str:
    """What a program prints, what it complains of last. If it fails, the case does. It is named by its path below FOLDER."""
    command = [str(FOLDER / str(words[0])), *(str(word) for word in words[1:])]
    # The driver's folder comes first: `outboard run` has put it there.
    paths = [os.environ.get("LD_LIBRARY_PATH", ""), LIBRARIES]
    home = Path.cwd() / "home"
    home.mkdir(exist_ok=True)
    variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), "HOME": str(home), **(env or {})}
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said, complaints = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    sys.stderr.write(f"$ {' '.join(command)}\n{said}{complaints}")
    if done.returncode != 0:
        sys.exit(f"FAILED: {words[0]} ended with {done.returncode}")
    return said + complaints


def content(name: str, path: str | Path) -> None:
    """A checksum of a file: the runs must write the same."""
    print(f"{name}: {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]}", flush=True)


def close(what: str, value: float, right: float, tolerance: float) -> None:
    """Ends the case unless a number is what it should be, to within an absolute tolerance."""
    if not abs(value - right) <= tolerance:
        sys.exit(f"FAILED: {what} is {value!r}, should be {right!r} to within {tolerance:g}")
    print(f"{what} is {right:g} to within {tolerance:g}: yes", flush=True)
