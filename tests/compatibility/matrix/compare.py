"""Compares what a case printed natively with what it printed through Outboard.

A line is compared as it is, with two exceptions that cases ask for themselves (see cases/compat.py):

    name ~1e-05: 0.5 1.25     numbers that may differ by that much, relatively
    info ...                  not compared: times, and what depends on the moment
"""

from __future__ import annotations

import math
import re

NEAR = re.compile(r"^(?P<name>.+) ~(?P<tolerance>[0-9.e+-]+): (?P<numbers>.*)$")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if not line.startswith("info ")]


def near(native: str, remote: str) -> bool:
    """Whether two lines say the same within the tolerance that both state."""
    one, other = NEAR.match(native), NEAR.match(remote)
    if not one or not other or one["name"] != other["name"] or one["tolerance"] != other["tolerance"]:
        return False
    try:
        left = [float(word) for word in one["numbers"].split()]
        right = [float(word) for word in other["numbers"].split()]
        tolerance = float(one["tolerance"])
    except ValueError:
        return False
    if len(left) != len(right):
        return False
    return all(a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in zip(left, right))


def difference(native: str, remote: str) -> str | None:
    """The first line that differs, or None when all is the same."""
    left, right = lines(native), lines(remote)
    for position in range(max(len(left), len(right))):
        a = left[position] if position < len(left) else None
        b = right[position] if position < len(right) else None
        if a == b or (a is not None and b is not None and near(a, b)):
            continue
        return f"natively {quote(a)}, through Outboard {quote(b)}"
    return None


def quote(line: str | None) -> str:
    if line is None:
        return "nothing"
    return repr(line if len(line) <= 160 else line[:157] + "...")


ERROR = re.compile(r"^\s*([\w.]*(Error|Exception|Fault|Failure)\b.*|.*\bCUDA_ERROR_\w+.*|.*[Cc]uda error.*|.*FAILED.*)$")


def first_error(stdout: str, stderr: str) -> str:
    """The line that says best why a run failed."""
    said = [line.strip() for line in (stdout + "\n" + stderr).splitlines() if line.strip()]
    # Python's exception is the last line that looks like one; what follows it is chatter at exit.
    telling = [line for line in said if ERROR.match(line)]
    line = telling[-1] if telling else (said[-1] if said else "it said nothing")
    return line if len(line) <= 240 else line[:237] + "..."
