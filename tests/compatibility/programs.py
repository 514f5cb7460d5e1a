#!/usr/bin/env python3
"""Runs programs of Debian's as they are, natively and through Outboard, by the recipes of the folder `recipes`.

    programs.py run --programs FOLDER --dist DIR --driver LIBCUDA --out DIR [--groups NAME,...]
    programs.py list
    programs.py packages [--quick]
    programs.py pack --programs FOLDER --out FILE
    programs.py page --results programs.json --write docs/compatibility.md

FOLDER has a folder for each program, into which Debian's packages were unpacked: `cargo xtask debian-programs` makes it.
`pack` makes a small file of it, which `run` takes on a machine without network. Libraries of CUDA are those of `--cuda`,
of the interpreter's packages, or of an installed toolkit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import site
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from matrix import case, hidden, page, prepare, recipe, runner, standin
from matrix.case import Case
from matrix.recipe import Program


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run recipes")
    prepare.add_options(run)
    run.add_argument("--programs", type=Path, required=True, help="where the programs are: a folder, or what `pack` made")
    run.add_argument("--cuda", type=Path, action="append", default=[], metavar="DIR", help="a folder with libraries of CUDA")
    run.add_argument("--groups", default="", metavar="NAME,...", help="only these programs")
    run.add_argument("--slow", action="store_true", help="also what the software device takes minutes for")
    run.add_argument("--native-runs", type=int, default=1, help="2 shows which recipes differ from themselves")
    commands.add_parser("list", help="list the recipes")
    packages = commands.add_parser("packages", help="each program with its packages of Debian's, a line each")
    packages.add_argument("--quick", action="store_true", help="only programs that the software device runs quickly")
    pack = commands.add_parser("pack", help="gather what a machine without network needs")
    pack.add_argument("--programs", type=Path, required=True)
    pack.add_argument("--out", type=Path, required=True, metavar="FILE", help="a file, such as programs.tar.xz")
    write = commands.add_parser("page", help="write the page's section of results")
    write.add_argument("--results", type=Path, required=True)
    write.add_argument("--write", type=Path, required=True, metavar="PAGE")
    return parser.parse_args()


class Cuda:
    """Libraries of CUDA on this machine, under the names by which programs ask for them."""

    # Programs ask for it without a number.
    UNNUMBERED = {"libnvrtc.so": ["libnvrtc.so.13", "libnvrtc.so.12"]}

    def __init__(self, given: list[Path], links: Path) -> None:
        packages = {*site.getsitepackages(), sysconfig.get_path("purelib")}
        self.folders = [folder.resolve() for folder in given]
        self.folders += [folder for place in sorted(packages) for folder in sorted(Path(place).glob("nvidia/*/lib"))]
        self.folders += [path.resolve() for path in sorted(Path("/usr/local").glob("cuda*/lib64"), reverse=True)]
        self.folders += hidden.loader_folders()
        self.links = links
        links.mkdir(parents=True)

    def find(self, names: list[str]) -> Path | None:
        paths = (folder / name for name in names for folder in self.folders)
        return next((path for path in paths if path.exists()), None)

    def missing(self, item: Case, program: Program, software: bool) -> str | None:
        """What of its needs is not here. What is, has a link, and its folder is searched for what it needs itself."""
        for name in item.cuda:
            if software and name in program.software:
                continue
            names = self.UNNUMBERED.get(name) or standin.LATER[name]
            path = self.find(names)
            if path is None:
                return " or ".join(names)
            link = self.links / (name if name in self.UNNUMBERED else path.name)
            if not link.exists():
                link.symlink_to(path)
            # Not the folder itself, which may hold a driver library.
            for other in path.parent.glob(f"{path.name.split('.')[0]}*.so.*"):
                if not (self.links / other.name).exists():
                    (self.links / other.name).symlink_to(other)
        return None


class Programs(runner.Runner):
    """Runs recipes where their programs and CUDA's libraries are."""

    def __init__(
        self, setting: runner.Setting, cases: list[Case], programs: dict[str, Program], cuda: Cuda, software: bool
    ) -> None:
        super().__init__(setting, {}, frozenset())
        self.unpacked, self.cuda, self.software = programs, cuda, software
        # Before any runs: it makes links, and several run at once.
        self.obstacles = {item.name: self.obstacle(item, programs[item.group]) for item in cases}

    def environment(self, item: Case, folder: Path, remote: bool) -> dict[str, str]:
        env = super().environment(item, folder, remote)
        program = self.unpacked[item.group]
        libraries = [*program.search_path(self.software), self.cuda.links]
        env["COMPAT_PROGRAM"] = str(program.folder)
        env["COMPAT_PROGRAM_LIBRARIES"] = ":".join(str(path) for path in libraries)
        env["COMPAT_VARIANT"] = item.name.partition(".")[2]
        return env

    def row(self, item: Case) -> dict:
        program = self.unpacked[item.group]
        reason = self.obstacles[item.name]
        if reason:
            return {"name": item.name, "group": item.group, "title": item.title, "result": "left out", "reason": reason}
        if self.software and not self.runs_directly(program):
            item = replace(item, remote_only=True)
        return super().row(item)

    def obstacle(self, item: Case, program: Program) -> str | None:
        """Why a recipe cannot run here."""
        if not program.found():
            return f"{program.packages[0]} is not unpacked in {program.folder}"
        missing = self.cuda.missing(item, program, self.software)
        return f"{missing} is not here: name its folder with --cuda" if missing else None

    def runs_directly(self, program: Program) -> bool:
        """On the software device, without a server."""
        nvml = self.setting.dist / "lib/outboard/cpu/libnvidia-ml.so.1"
        return program.direct and (nvml.exists() or not program.nvml)


def located(path: Path, scratch: Path) -> dict[str, Program]:
    """All programs, those that are there with what stands in for libraries of CUDA."""
    if not path.exists():
        sys.exit(f"{path} is not there: `cargo xtask debian-programs` makes target/debian-programs, and with --pack a file")
    if not path.is_dir():
        with tarfile.open(path) as archive:
            archive.extractall(scratch, filter="data")
        return recipe.programs(scratch)
    programs = recipe.programs(path.resolve())
    for program in programs.values():
        if program.found():
            program.compile_stand_ins(scratch)
    return programs


def run(args: argparse.Namespace) -> int:
    software = args.driver == "cpu"
    groups = [name for name in args.groups.split(",") if name]
    cases = case.select(recipe.cases(), groups, args.only, args.skip, software, args.slow)
    if not cases:
        sys.exit("no recipe is selected; `programs.py list` shows all")
    with prepare.Session(args) as session:
        programs = located(args.programs, session.scratch / "programs")
        session.setting.native_runs = args.native_runs
        cuda = Cuda(args.cuda, session.scratch / "cuda")
        worker = Programs(session.setting, cases, programs, cuda, software)
        rows = runner.run_all(worker, cases, args.jobs, args.gpu_memory, lambda row: print(prepare.line(row), flush=True))
        about = {
            name: {"title": program.title, "about": program.about, "package": program.packages[0]}
            for name, program in programs.items()
        }
        session.finish("programs", rows, {"programs": about})
    return 0 if prepare.all_well(rows, args.driver) else 1


def pack(args: argparse.Namespace) -> int:
    """What recipes name, with the libraries that it needs, each under the name by which it is asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "packed"
        for name, program in located(args.programs, Path(scratch) / "stand-ins").items():
            if not program.found():
                sys.exit(f"{name} is not unpacked in {args.programs}: `cargo xtask debian-programs` does it")
            files = {path.relative_to(program.folder): path for path in program.found()}
            files |= {Path(recipe.PLACE) / soname: path for soname, path in program.closure().items()}
            stand_ins = [path for path in program.stand_ins.rglob("*") if path.is_file()]
            files |= {recipe.STAND_INS / path.relative_to(program.stand_ins): path for path in stand_ins}
            for place, path in files.items():
                target = folder / name / place
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        with tarfile.open(args.out, "w:xz", preset=6) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB")
    return 0


def main() -> int:
    args = arguments()
    if args.command == "list":
        for item in recipe.cases():
            print(f"{item.name:<34} {item.title}")
    elif args.command == "packages":
        quick = {item.group for item in recipe.cases() if item.software and not item.slow}
        for name, program in recipe.programs(Path()).items():
            if name in quick or not args.quick:
                print(name, *program.packages)
    elif args.command == "pack":
        return pack(args)
    elif args.command == "page":
        others, _ = page.split(args.write.read_text())
        args.write.write_text(others + page.programs_section(json.loads(args.results.read_text())))
    else:
        return run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
