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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from matrix import case, machine, page, prepare, runner
from matrix.case import Case


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run cases")
    prepare.add_options(run)
    run.add_argument("--groups", default="", metavar="NAME,...", help="only these groups")
    run.add_argument("--native-runs", type=int, default=1, help="2 shows which cases differ from themselves")
    run.add_argument("--python", default=sys.executable, help="the interpreter that has the frameworks")
    run.add_argument("--nvcc", default=shutil.which("nvcc"))

    commands.add_parser("list", help="list the cases")

    write = commands.add_parser("page", help="write the page of results")
    write.add_argument("--results", type=Path, required=True)
    write.add_argument("--samples", type=Path)
    write.add_argument("--write", type=Path, required=True, metavar="PAGE")
    return parser.parse_args()


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


def run(args: argparse.Namespace) -> int:
    groups = [name for name in args.groups.split(",") if name]
    cases = case.select(case.discover(), groups, args.only, args.skip, software=args.driver == "cpu")
    if not cases:
        sys.exit("no case is selected; `run.py list` shows all")
    with prepare.Session(args) as session:
        session.setting.native_runs = args.native_runs
        session.setting.python = args.python
        capability = None if args.driver == "cpu" else session.capability()
        programs = compile_all(cases, args.nvcc, capability, session.scratch / "programs", session.logs)
        worker = runner.Runner(session.setting, programs, missing_modules(cases, args.python))
        rows = runner.run_all(worker, cases, args.jobs, args.gpu_memory, lambda row: print(prepare.line(row), flush=True))
        environment = worker.environment(cases[0], session.scratch, remote=False)
        about = {"devices": session.device_names()} | machine.describe(args.python, args.nvcc, environment)
        session.finish("results", rows, {"machine": about, "packages": machine.packages(args.python)})
    return 0 if prepare.all_well(rows, args.driver) else 1


def main() -> int:
    args = arguments()
    if args.command == "list":
        for item in case.discover():
            print(f"{item.name:<34} {item.title}")
        return 0
    if args.command == "page":
        samples = json.loads(args.samples.read_text()) if args.samples else None
        _, programs = page.split(args.write.read_text() if args.write.exists() else "")
        args.write.write_text(page.render(json.loads(args.results.read_text()), samples) + programs)
        return 0
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
