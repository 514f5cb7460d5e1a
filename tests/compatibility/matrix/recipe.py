"""Recipes: cases that run programs of Debian's as they are. recipes/<program>/ has one program's, and program.toml:

    title      the program with its version, for the page
    about      what it is, and what of CUDA it uses
    packages   Debian's packages to unpack, the first with its version; what few machines have of their needs, too
    files      what of them is needed: programs, and what they read. Libraries are found by what programs need
    nvml       true: it does not start without NVML
    direct     false: on the software device it runs through a server only
    own        { library = file }: functions of ours in what stands in for a library of CUDA 11, see standin.py
    software   the same, for the software device
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from . import standin
from .case import CASES, Case, discover

RECIPES = CASES.parent / "recipes"
# Where what stands in for libraries of CUDA lies in a folder that `pack` has made; in it, what the software device needs.
STAND_INS, SOFTWARE = Path("stand-in"), "software"
# Where libraries lie in a folder into which packages were unpacked.
PLACE = "usr/lib/x86_64-linux-gnu"
LIBRARIES = (PLACE, f"{PLACE}/blas", f"{PLACE}/lapack", "lib/x86_64-linux-gnu")
# Of every machine on which the programs can run at all; and what the driver brings.
EVERYWHERE = re.compile(
    r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|cuda|nvidia-ml))\.so\.[0-9]+$"
)
RESOLVED = re.compile(r"^\s*(?P<name>\S+) => (?P<path>/\S+|not found)", re.MULTILINE)


@dataclass
class Program:
    """One of recipes/, and where it lies unpacked."""

    name: str
    folder: Path
    title: str
    about: str
    packages: list[str]
    files: list[str]
    nvml: bool = False
    direct: bool = True
    own: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stand_ins = self.folder / STAND_INS

    def found(self) -> list[Path]:
        """Its files that are there."""
        return sorted(path for pattern in self.files for path in self.folder.glob(pattern) if path.is_file())

    def library_folders(self) -> list[Path]:
        return [self.folder / name for name in LIBRARIES]

    def search_path(self, software: bool) -> list[Path]:
        """Where it finds its libraries."""
        first = [self.stand_ins / SOFTWARE] if software else []
        return [*first, self.stand_ins, *self.library_folders()]

    def linked(self) -> list[Path]:
        """Its programs, and those of its libraries that something stands in for."""
        libraries = [path for folder in self.library_folders() for path in folder.glob("lib*.so.*")]
        return [path for path in {path.resolve() for path in [*self.found(), *libraries]} if is_elf(path)]

    def compile_stand_ins(self, scratch: Path) -> None:
        """Compiles what stands in for libraries of CUDA 11."""
        self.stand_ins = scratch / self.name
        place, linked = RECIPES / self.name, self.linked()
        files = lambda named: {library: place / name for library, name in named.items()}  # noqa: E731
        standin.build(linked, self.stand_ins, files(self.own))
        standin.build(linked, self.stand_ins / SOFTWARE, files(self.software), only=True)

    def closure(self) -> dict[str, Path]:
        """The libraries that its files need, but for those of every machine and of CUDA."""
        path = ":".join(str(folder) for folder in self.search_path(software=False))
        elves = [str(file) for file in self.found() if is_elf(file)]
        listing = subprocess.run(["ldd", *elves], capture_output=True, text=True, check=False, env={"LD_LIBRARY_PATH": path})
        libraries = {}
        for match in RESOLVED.finditer(listing.stdout):
            if EVERYWHERE.match(match["name"]) or match["name"] in standin.LATER:
                continue
            if match["path"] == "not found":
                sys.exit(f"{self.name} needs {match['name']}, which neither its packages nor this machine have")
            libraries[match["name"]] = Path(match["path"])
        return libraries


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def programs(folder: Path) -> dict[str, Program]:
    """All, by name; `folder` is where each lies unpacked in a folder of its name."""
    found = {}
    for path in sorted(RECIPES.glob("*/program.toml")):
        name = path.parent.name
        try:
            found[name] = Program(name, folder / name, **tomllib.loads(path.read_text()))
        except (tomllib.TOMLDecodeError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error
    return found


def cases() -> list[Case]:
    return discover(RECIPES)
