"""Runs cases, several at once as far as the device's memory goes, each natively and through Outboard."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import command, compare, hidden, statistics
from .case import CASES, Case
from .command import Outcome

# Output of a run is kept in the results up to this size.
KEPT = 64 * 1024


@dataclass
class Setting:
    """What all runs share."""

    dist: Path | None
    servers: str | None  # their addresses; None: native runs only
    devices: int | None  # of all servers
    native_command: list[str]  # what native runs begin with
    native_libraries: str  # what comes first in the library path of native runs
    scratch: Path
    logs: Path
    python: str
    nvidia_smi: str | None
    folders: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    isolated: bool = True
    native_runs: int = 1
    earlier: dict[str, dict] = field(default_factory=dict)  # native results of an earlier run, by case
    patience: float = 1.0
    deadline: float = float("inf")

    def left(self) -> float:
        return self.deadline - time.monotonic()


class Runner:
    """One case after the other, natively and through Outboard."""

    def __init__(self, setting: Setting, programs: dict[Path, Path], missing: frozenset[str]) -> None:
        self.setting = setting
        self.programs = programs
        self.missing = missing

    def environment(self, case: Case, folder: Path, remote: bool) -> dict[str, str]:
        """Caches of a run are its own, so that nothing compiled natively is found through Outboard."""
        setting = self.setting
        env = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOARD_")}
        env.update(
            PYTHONPATH=os.pathsep.join(filter(None, [str(CASES), os.environ.get("PYTHONPATH")])),
            PYTHONUNBUFFERED="1",
            PYTHONSAFEPATH="1",  # a case named like a module does not stand in for it
            PYTHONDONTWRITEBYTECODE="1",
            OMP_NUM_THREADS="4",
            TMPDIR=str(folder / "tmp"),
            XDG_CACHE_HOME=str(folder / "cache"),
            TRITON_CACHE_DIR=str(folder / "cache/triton"),
            TORCHINDUCTOR_CACHE_DIR=str(folder / "cache/inductor"),
            CUPY_CACHE_DIR=str(folder / "cache/cupy"),
            NUMBA_CACHE_DIR=str(folder / "cache/numba"),
            CUDA_CACHE_PATH=str(folder / "cache/cuda"),
        )
        if setting.nvidia_smi:
            env["COMPAT_NVIDIA_SMI"] = setting.nvidia_smi
        if remote:
            env["LD_LIBRARY_PATH"] = hidden.without("LD_LIBRARY_PATH", setting.folders)
            env["PATH"] = hidden.without("PATH", setting.folders)
            env["COMPAT_REMOTE"] = str(setting.dist)
            env["OUTBOARD_PROFILE"] = str(folder / "statistics/%p.json")
        else:
            parts = [setting.native_libraries, os.environ.get("LD_LIBRARY_PATH", "")]
            env["LD_LIBRARY_PATH"] = ":".join(part for part in parts if part)
        env.update(case.env)
        return env

    def once(self, case: Case, way: str, remote: bool) -> tuple[Outcome, Path]:
        """One run, in an empty folder of its own."""
        setting = self.setting
        folder = setting.scratch / f"{case.file_name}.{way}"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("tmp", "cache", "statistics"):
            (folder / name).mkdir(parents=True)
        program = self.programs.get(case.path)
        words = [str(program)] if program else [setting.python, str(case.path)]
        words += case.args
        if remote:
            words = [str(setting.dist / "bin/outboard"), "run", "--server", setting.servers, "--", *words]
            if setting.isolated:
                words = hidden.command(setting.folders, setting.files, words)
        else:
            words = [*setting.native_command, *words]
        env = self.environment(case, folder, remote)
        limit = max(1.0, min(case.timeout * setting.patience, setting.left()))
        outcome = command.run(words, setting.logs / f"{case.file_name}.{way}", env, case.cwd or folder, limit)
        return self.judged(outcome), folder

    def judged(self, outcome: Outcome) -> Outcome:
        """The outcome, with what more is wrong with it than its exit code says."""
        return outcome

    def difference(self, native: str, remote: str) -> str | None:
        """What differs between the outputs of two runs."""
        return compare.difference(native, remote)

    def row(self, case: Case) -> dict:
        """Runs a case both ways; the row says how that went."""
        row: dict = {"name": case.name, "group": case.group, "title": case.title}
        if case.path.suffix == ".cu" and case.path not in self.programs:
            return row | {"result": "not built", "reason": "nvcc could not compile it, see the logs"}
        if case.group == "isolation" and not self.setting.isolated:
            return row | {"result": "left out", "reason": "remote runs are not isolated in this run"}
        missing = [name for name in case.wants if name in self.missing]
        if missing:
            return row | {"result": "left out", "reason": f"{', '.join(missing)} is not installed"}
        if self.setting.devices is not None and self.setting.devices < case.devices:
            return row | {"result": "left out", "reason": f"it needs {case.devices} devices"}
        native = self.native(case, row)
        if self.setting.servers is None:
            row["result"] = "not run" if native is None else "native ok" if native["ok"] else "native fails"
            return row
        self.remote(case, row, native)
        return row

    def native(self, case: Case, row: dict) -> dict | None:
        """The native run, or an earlier one's result; None for a case that has none."""
        if case.remote_only:
            return None
        earlier = self.setting.earlier.get(case.name)
        if earlier and earlier.get("native", {}).get("ok"):
            row["native"] = earlier["native"] | {"earlier": True}
            return row["native"]
        outcomes = []
        for number in range(self.setting.native_runs):
            outcome, folder = self.once(case, f"native{number or ''}", remote=False)
            shutil.rmtree(folder, ignore_errors=True)
            outcomes.append(outcome)
            if not outcome.ok:
                break
        row["native"] = said(outcomes[0])
        failed = next((outcome for outcome in outcomes if not outcome.ok), None)
        if failed:
            row["native"] = said(failed)
            row["native_error"] = compare.first_error(failed.stdout, failed.stderr)
        for other in outcomes[1:]:
            differs = self.difference(outcomes[0].stdout, other.stdout)
            if differs:
                row["native_differs"] = differs
        return row["native"]

    def remote(self, case: Case, row: dict, native: dict | None) -> None:
        """The run through Outboard, and what became of the case."""
        outcome, folder = self.once(case, "remote", remote=True)
        row["remote"] = said(outcome)
        row["statistics"] = statistics.collect(folder / "statistics")
        shutil.rmtree(folder, ignore_errors=True)
        if not outcome.ok:
            row["error"] = compare.first_error(outcome.stdout, outcome.stderr)
        if native is not None and not native["ok"]:
            row["result"] = "native fails"
        elif outcome.code is None:
            row["result"] = "timeout"
        elif not outcome.ok:
            row["result"] = "fails"
        elif native is None:
            row["result"] = "passes"
        else:
            differs = self.difference(native["stdout"], outcome.stdout)
            row["result"] = "differs" if differs else "passes"
            if differs:
                row["error"] = differs


def said(outcome: Outcome) -> dict:
    return {
        "ended": outcome.ended,
        "ok": outcome.ok,
        "seconds": round(outcome.seconds, 2),
        "stdout": outcome.stdout[:KEPT],
    }


class Memory:
    """Lets cases in as long as what they need fits."""

    def __init__(self, gibibytes: float) -> None:
        self.all = self.free = gibibytes
        self.changed = threading.Condition()

    def take(self, amount: float) -> float:
        amount = min(amount, self.all)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= amount)
            self.free -= amount
        return amount

    def give(self, amount: float) -> None:
        with self.changed:
            self.free += amount
            self.changed.notify_all()


def run_all(
    runner: Runner, cases: list[Case], jobs: int, gibibytes: float, done: Callable[[dict], None]
) -> list[dict]:
    """Runs everything, the longest first, what wants to be alone last; `done` is told of each row."""
    memory = Memory(gibibytes)
    rows: list[dict] = []
    lock = threading.Lock()

    def one(case: Case) -> None:
        taken = memory.take(case.memory)
        try:
            if runner.setting.left() < 2:
                row = {"name": case.name, "group": case.group, "title": case.title, "result": "not run"}
                row["reason"] = "the time for the whole matrix was up"
            else:
                row = runner.row(case)
        except Exception as error:  # one case's trouble must not end the others
            row = {"name": case.name, "group": case.group, "title": case.title, "result": "not run"}
            row["reason"] = f"the runner failed: {error}"
        finally:
            memory.give(taken)
        with lock:
            rows.append(row)
            done(row)

    together = sorted((case for case in cases if not case.alone), key=lambda case: -case.timeout)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, together))
    for case in cases:
        if case.alone:
            one(case)
    return sorted(rows, key=lambda row: row["name"])
