"""Runs applications for `outboard bench`: requests on standard input, answers on standard output, one JSON object a line.

    python3 participant.py MODULE...

A module has `APPS`, functions by name. Each sets its application up and returns a function that takes one turn: it runs some iterations, waits
for the device, and returns (seconds by measure, iterations).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
import traceback

PACKAGES = ("torch", "transformers", "cupy-cuda13x", "cupy-cuda12x", "jax", "nvidia-cudnn-cu13", "nvidia-cublas")

# What libraries print must not stand among the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(**answer: object) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def versions() -> dict[str, str]:
    found = {"Python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def turn(take, budget: float) -> dict[str, object]:
    """Takes turns until the time is up."""
    samples: dict[str, list[float]] = {}
    iterations, started = 0, time.perf_counter()
    while not samples or time.perf_counter() - started < budget:
        seconds, count = take()
        iterations += count
        for name, value in seconds.items():
            samples.setdefault("app." + name, []).append(value)
    return {"samples": samples, "operations": iterations, "seconds": time.perf_counter() - started}


def main() -> None:
    apps, missing = {}, {}
    for name in sys.argv[1:]:
        try:
            apps.update(importlib.import_module(name).APPS)
        except ImportError as error:
            missing[name] = str(error)
    say(**{"is": "hello"}, facts=versions())
    take, budget = None, 0.0
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "run":
                say(**{"is": "taken"}, **turn(take, budget))
                continue
            take = None
            if request["do"] == "prepare":
                name = request["measure"].removeprefix("app.")
                if name not in apps:
                    say(**{"is": "skipped"}, reason="; ".join(dict.fromkeys(missing.values())) or f"there is no application {name}")
                    continue
                # Applications iterate in milliseconds, driver calls in microseconds.
                budget = request["milliseconds"] / 1000 * 8
                take = apps[name]()
            say(**{"is": "ready"})
        except Exception as error:  # The next request may do better.
            traceback.print_exc()
            say(**{"is": "failed"}, reason=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


if __name__ == "__main__":
    main()
