#!/usr/bin/env python3
"""Runs NVIDIA's cuda-samples, built elsewhere, natively and through Outboard.

    samples.py --build DIR --dist DIR --driver LIBCUDA --out DIR [--only PATTERN]...

A sample passes when its own check does: exit code 0, and nothing in its output that says it failed. Its output through
Outboard is compared with the native one as well, without lines that tell times and rates; where a second native run
differs too, the table says that it varies. samples.toml holds arguments and what is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

from matrix import compare, prepare, runner
from matrix.case import Case, matches
from matrix.command import Outcome

LIST = Path(__file__).resolve().parent / "samples.toml"
FAILED = re.compile(r"\bFAILED\b|\bTest failed\b|Result = FAIL|\bfailed!")
# The exit code by which a sample says that it does not apply to this machine.
WAIVED = 2

# Lines about speed, and about what is different each time.
MOMENTARY = re.compile(
    r"time|second|\bsecs?\b|\bms\b|msec|usec|\bus\b|µs|speed|bandwidth|throughput|[GMK]i?B/s|flop|fps|clock|MHz|per sec|"
    r"bytes/s|elements/s|samples?/s|options/|latency|elapsed|faster|process|\bpid\b|free|memory used|driver version",
    re.IGNORECASE,
)
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}|\b[0-9a-f]{9,16}\b")


def comparable(text: str) -> str:
    """The lines of an output that should be the same each time."""
    return "\n".join(ADDRESS.sub("0x", line.strip()) for line in text.splitlines() if line.strip() and not MOMENTARY.search(line))


class Samples(runner.Runner):
    """Judges as the samples do."""

    def judged(self, outcome: Outcome) -> Outcome:
        if outcome.code == WAIVED:
            return replace(outcome, complaint="waived")
        said = FAILED.search(outcome.stdout + outcome.stderr)
        return replace(outcome, complaint="says failed") if outcome.ok and said else outcome

    def difference(self, native: str, remote: str) -> str | None:
        return compare.difference(comparable(native), comparable(remote))

    def row(self, case: Case) -> dict:
        row = super().row(case)
        row["name"] = row["name"].removeprefix("samples/")
        if row["result"] == "passes" and "native" in row:
            row["output"] = "same"
        if row["result"] == "differs":
            row["result"] = "passes"
            again, _ = self.once(case, "again", remote=False)
            varies = self.difference(row["native"]["stdout"], again.stdout)
            row["output"] = "varies" if varies else "**differs**"
        return row


def programs(build: Path) -> dict[str, Path]:
    """The programs below the build folder, by name."""
    found = {}
    for path in sorted(build.rglob("*")):
        if "CMakeFiles" in path.parts or path.is_dir() or ".so" in path.name or not os.access(path, os.X_OK):
            continue
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                found.setdefault(path.name, path.resolve())
    return found


def sources(folder: Path | None) -> set[str]:
    """The programs that the source describes."""
    if not folder:
        return set()
    pattern = re.compile(r"^\s*add_executable\((\S+)", re.MULTILINE)
    return {name for path in folder.rglob("CMakeLists.txt") for name in pattern.findall(path.read_text()) if "$" not in name}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prepare.add_options(parser)
    parser.add_argument("--build", type=Path, required=True, help="the folder in which the samples were built")
    parser.add_argument("--source", type=Path, help="their source: samples that were not built are told then")
    parser.add_argument("--release", default="", help="which release of the samples it is, for the page")
    parser.add_argument("--limit", type=float, default=90, metavar="SECONDS", help="for each run")
    args = parser.parse_args()
    told = tomllib.loads(LIST.read_text())
    found = programs(args.build)
    if not found:
        sys.exit(f"there are no programs below {args.build}")

    def wanted(name: str) -> bool:
        return (not args.only or matches(name, args.only)) and not matches(name, args.skip)

    left_out = {name: why for why, names in told["left_out"].items() for name in names}
    if len(list(Path("/dev").glob("nvidia[0-9]*"))) < 2:
        left_out.update(dict.fromkeys(told["several"], "needs several GPUs, and this machine has one"))
    for name in sources(args.source) - found.keys() - left_out.keys():
        left_out[name] = "it was not built"
    rows = [
        {"name": name, "group": "samples", "title": "", "result": "left out", "reason": left_out[name]}
        for name in left_out
        if wanted(name)
    ]
    cases = [
        Case(
            f"samples/{name}",
            path,
            timeout=told["limits"].get(name, args.limit),
            memory=told["memory"].get(name, 2),
            alone=name in told["alone"],
            args=told["arguments"].get(name, []),
            cwd=path.parent,
        )
        for name, path in found.items()
        if name not in left_out and wanted(name)
    ]
    with prepare.Session(args) as session:
        session.setting.earlier = {f"samples/{name}": row for name, row in session.setting.earlier.items()}
        worker = Samples(session.setting, {case.path: case.path for case in cases}, frozenset())
        rows += runner.run_all(worker, cases, args.jobs, args.gpu_memory, lambda row: print(prepare.line(row), flush=True))
        rows.sort(key=lambda row: row["name"].lower())
        session.finish("samples", rows, {"release": args.release})
    return 0 if prepare.all_well(rows, args.driver) else 1


if __name__ == "__main__":
    sys.exit(main())
