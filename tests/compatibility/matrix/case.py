"""What there is to run: files below cases/<group>/, each with a header that says how.

Header lines begin with `#:` (Python) or `//:` (CUDA) and hold TOML:

    title        what the case shows, for the page
    timeout      seconds a run may take (60)
    memory       GiB of device memory it needs at most (2)
    devices      how many it needs (1)
    alone        true: nothing else runs beside it
    software     true: the software device can run it too
    slow         true, or names of variants: the software device takes long for it, and runs it only with --slow
    remote_only  true: it has no native run to compare with; it checks itself
    env          variables of its environment
    variants     { name = { VARIABLE = "value" } }: the case runs once for each, named <group>/<case>.<name>
    nvcc         options for the compiler
    wants        Python modules without which the case is left out
    cuda         libraries of CUDA without which the case is left out, such as libcufft.so.10 (recipes)
"""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

CASES = Path(__file__).resolve().parent.parent / "cases"
MARKS = {".py": "#:", ".cu": "//:"}
KEYS = {
    *("title", "timeout", "memory", "devices", "alone", "software", "slow", "remote_only", "env", "variants", "nvcc"),
    *("wants", "cuda"),
}


@dataclass
class Case:
    """One row of the matrix."""

    name: str
    path: Path
    title: str = ""
    timeout: float = 60
    memory: float = 2
    devices: int = 1
    alone: bool = False
    software: bool = False
    slow: bool = False
    remote_only: bool = False
    env: dict[str, str] = field(default_factory=dict)
    nvcc: list[str] = field(default_factory=list)
    wants: list[str] = field(default_factory=list)
    cuda: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    cwd: Path | None = None  # an empty folder of its own when not said

    @property
    def group(self) -> str:
        return self.name.split("/", 1)[0]

    @property
    def file_name(self) -> str:
        """The name, fit for a file."""
        return self.name.replace("/", "-")


def header(path: Path) -> dict:
    """The header of a case's file; a mistake in it is an error that names the file."""
    mark = MARKS[path.suffix]
    lines = [line[len(mark) :] for line in path.read_text().splitlines() if line.startswith(mark)]
    try:
        values = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: its header is not TOML: {error}") from error
    unknown = values.keys() - KEYS
    if unknown:
        raise ValueError(f"{path}: its header has unknown keys: {', '.join(sorted(unknown))}")
    if not values.get("title"):
        raise ValueError(f"{path}: its header has no title")
    return values


def read(path: Path, group: str) -> list[Case]:
    """The cases of one file: one, or one for each variant."""
    values = header(path)
    variants = values.pop("variants", {"": {}})
    env, slow = values.pop("env", {}), values.pop("slow", False)
    name = f"{group}/{path.stem}"

    def is_slow(variant: str) -> bool:
        return variant in slow if isinstance(slow, list) else slow

    return [
        Case(f"{name}.{variant}" if variant else name, path, env={**env, **extra}, slow=is_slow(variant), **values)
        for variant, extra in variants.items()
    ]


def discover(folder: Path = CASES) -> list[Case]:
    """Every case, sorted by name."""
    found = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix in MARKS and not path.name.startswith("_"):
            found += read(path, path.parent.name)
    return sorted(found, key=lambda case: case.name)


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a name matches one of the patterns or contains it."""
    return any(fnmatch.fnmatch(name, text) or text in name for text in patterns)


def select(
    cases: list[Case], groups: list[str], only: list[str], skip: list[str], software: bool, slow: bool = False
) -> list[Case]:
    """Those in the groups whose names are asked for; all when nothing is. `slow`: the software device runs slow ones, too."""
    return [
        case
        for case in cases
        if (not groups or case.group in groups)
        and (not software or case.software and (slow or not case.slow))
        and (not only or matches(case.name, only))
        and not matches(case.name, skip)
    ]
