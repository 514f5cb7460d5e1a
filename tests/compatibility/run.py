#!/usr/bin/env python3
"""The compatibility matrix: runs every case natively and through Outboard, and compares what they print.

    run.py run --dist DIR --driver LIBCUDA --out DIR [--only PATTERN]... [--groups NAME,...]
    run.py list
    run.py page --results results.json [--samples samples.json] --write docs/compatibility.md

Needs Python 3.11, nvcc for the CUDA cases, and whichever of the frameworks are installed: cases of others are left
out. `--driver cpu` runs what the software device can run, on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from matrix import case, hidden, machine, page, runner
from matrix.case import Case
from matrix.server import Server

PASSING = ("passes", "native ok", "left out", "native fails")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run cases")
    run.add_argument("--dist", type=Path, help="an installation of Outboard; without it only native runs are made")
    run.add_argument("--driver", default="libcuda.so.1", help="NVIDIA's libcuda.so.1, or cpu for the software device")
    run.add_argument("--out", type=Path, required=True, help="folder for results.json, summary.txt and logs.tar.xz")
    run.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases whose names match or contain it")
    run.add_argument("--groups", default="", metavar="NAME,...", help="only these groups")
    run.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) // 2), help="cases at once")
    run.add_argument("--gpu-memory", type=float, default=120, metavar="GIB", help="device memory to fill at most")
    run.add_argument("--native-runs", type=int, default=1, help="2 shows which cases differ from themselves")
    run.add_argument("--native-from", type=Path, metavar="RESULTS", help="take native results from an earlier run")
    run.add_argument("--deadline", type=float, default=None, metavar="SECONDS", help="start nothing after this time")
    run.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="multiplies every time limit")
    run.add_argument("--python", default=sys.executable, help="the interpreter that has the frameworks")
    run.add_argument("--nvcc", default=shutil.which("nvcc"))
    run.add_argument(
        "--isolation", choices=["always", "if-possible", "never"], default="always", help="hide the GPU from remote runs"
    )

    commands.add_parser("list", help="list the cases")

    write = commands.add_parser("page", help="write the page of results")
    write.add_argument("--results", type=Path, required=True)
    write.add_argument("--samples", type=Path)
    write.add_argument("--write", type=Path, required=True, metavar="PAGE")
    return parser.parse_args()


def native_libraries(args: argparse.Namespace) -> str:
    """What native runs need in their library path to find the driver."""
    if args.driver == "cpu":
        return str(args.dist / "lib/outboard/cpu")
    found = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], capture_output=True, check=False
    )
    return "" if found.returncode == 0 else str(Path(args.driver).resolve().parent)


def compile_all(cases: list[Case], nvcc: str | None, capability: str | None, folder: Path, logs: Path) -> dict[Path, Path]:
    """Compiles the CUDA cases; those that fail are missing in the result."""
    if not nvcc:
        return {}
    # For the software device and unknown GPUs: PTX that any of them compiles.
    code = f"arch=compute_{capability},code=sm_{capability}" if capability else "arch=compute_75,code=compute_75"
    libraries = Path(nvcc).resolve().parent.parent / "lib"
    folder.mkdir(parents=True, exist_ok=True)

    def one(source: Case) -> tuple[Path, Path] | None:
        program = folder / source.path.stem
        words = [nvcc, "-std=c++17", "-O2", "-gencode", code, "-L", str(libraries), *source.nvcc, "-o", str(program)]
        done = subprocess.run([*words, str(source.path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return source.path, program
        (logs / f"{source.file_name}.nvcc").write_text(done.stdout + done.stderr)
        return None

    sources = {item.path: item for item in cases if item.path.suffix == ".cu"}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pair for pair in pool.map(one, sources.values()) if pair)


def missing_modules(cases: list[Case], python: str) -> frozenset[str]:
    """Which of the modules that cases want are not there."""
    wanted = sorted({name for item in cases for name in item.wants})
    check = (
        "import importlib.util, sys\n"
        "def there(name):\n"
        "    try:\n"
        "        return importlib.util.find_spec(name) is not None\n"
        "    except ModuleNotFoundError:\n"
        "        return False\n"
        "print(*(name for name in sys.argv[1:] if not there(name)))\n"
    )
    said = subprocess.run([python, "-c", check, *wanted], capture_output=True, text=True, check=True)
    return frozenset(said.stdout.split())


def line(row: dict) -> str:
    """One row of the table on standard output."""
    native, remote = row.get("native"), row.get("remote")
    shown = [f"{run['seconds']:7.1f} {run['ended']:<8}" if run else f"{'–':>7} {'':<8}" for run in (native, remote)]
    note = ""
    if row["result"] not in ("passes", "native ok"):
        note = row.get("reason") or row.get("native_error") or row.get("error") or ""
        refused = row.get("statistics", {}).get("refused")
        if refused:
            note += f" [not supported: {', '.join(refused)}]"
    if row.get("native_differs"):
        note += f" (native runs differ: {row['native_differs']})"
    return f"{row['name']:<34} {shown[0]} {shown[1]} {row['result']:<13} {note}"


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    if args.driver == "cpu" and not args.dist:
        sys.exit("the software device is part of an installation: name it with --dist")
    args.out.mkdir(parents=True, exist_ok=True)
    args.out, args.dist = args.out.resolve(), args.dist.resolve() if args.dist else None
    groups = [name for name in args.groups.split(",") if name]
    cases = case.select(case.discover(), groups, args.only, software=args.driver == "cpu")
    if not cases:
        sys.exit("no case is selected; `run.py list` shows all")
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        logs = Path(scratch) / "logs"
        logs.mkdir()
        server = Server(args.dist / "bin/outboard", args.driver, logs / "server.log") if args.dist else None
        try:
            results = matrix(args, cases, server, Path(scratch), logs, started)
        finally:
            if server:
                server.stop()
            with tarfile.open(args.out / "logs.tar.xz", "w:xz", preset=1) as archive:
                archive.add(logs, "logs")
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    summary = "\n".join(line(row) for row in results["rows"])
    summary += f"\n{page.counts(results['rows'])}, {results['seconds']:.0f} s\n"
    (args.out / "summary.txt").write_text(summary)
    print("\n" + summary, end="", flush=True)
    return 0 if all(row["result"] in PASSING for row in results["rows"]) else 1


def matrix(
    args: argparse.Namespace, cases: list[Case], server: Server | None, scratch: Path, logs: Path, started: float
) -> dict:
    """Prepares, runs, and says what was found."""
    folders, files = hidden.plan(args.driver)
    obstacle = hidden.possible() if server and args.isolation != "never" else None
    if obstacle and args.isolation == "always":
        sys.exit(f"remote runs cannot be isolated here: {obstacle}")
    libraries = native_libraries(args)
    devices = server.devices()["devices"] if server else []
    capability = None if args.driver == "cpu" or not devices else devices[0]["compute_capability"].replace(".", "")
    smi = shutil.which("nvidia-smi")
    if smi:
        # The real one is hidden with the driver; it is a program that a machine without a GPU may have.
        smi = shutil.copy(smi, scratch / "nvidia-smi")
    earlier = json.loads(args.native_from.read_text())["rows"] if args.native_from else []
    setting = runner.Setting(
        dist=args.dist,
        server=server.address if server else None,
        native_libraries=libraries,
        scratch=scratch / "runs",
        logs=logs,
        python=args.python,
        nvidia_smi=smi,
        folders=folders,
        files=files,
        isolated=args.isolation != "never" and not obstacle,
        native_runs=args.native_runs,
        earlier={row["name"]: row for row in earlier},
        patience=args.patience,
        deadline=started + args.deadline if args.deadline else float("inf"),
    )
    programs = compile_all(cases, args.nvcc, capability, scratch / "programs", logs)
    worker = runner.Runner(setting, programs, missing_modules(cases, args.python))
    rows = runner.run_all(worker, cases, args.jobs, args.gpu_memory, lambda row: print(line(row), flush=True))
    environment = worker.environment(cases[0], scratch, remote=False)
    return {
        "machine": {"devices": ", ".join(device["name"] for device in devices)}
        | machine.describe(args.python, args.nvcc, environment),
        "packages": machine.packages(args.python),
        "isolated": setting.isolated,
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
    }


def main() -> int:
    args = arguments()
    if args.command == "list":
        for item in case.discover():
            print(f"{item.name:<34} {item.title}")
        return 0
    if args.command == "page":
        samples = json.loads(args.samples.read_text()) if args.samples else None
        args.write.write_text(page.render(json.loads(args.results.read_text()), samples))
        return 0
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
