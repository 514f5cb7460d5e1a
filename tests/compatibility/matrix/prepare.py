"""What every run of the matrix begins and ends with: options, a server, what is to be hidden; results and logs."""

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
from pathlib import Path

from . import hidden, page
from .runner import Setting
from .server import Server, Servers

PASSING = ("passes", "native ok", "left out", "native fails")


def all_well(rows: list[dict], driver: str) -> bool:
    """Whether nothing speaks against Outboard. What fails with NVIDIA's driver does not; the software device is Outboard's."""
    allowed = [result for result in PASSING if driver != "cpu" or result != "native fails"]
    return all(row["result"] in allowed for row in rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that all runs share."""
    parser.add_argument("--dist", type=Path, help="an installation of Outboard; without it only native runs are made")
    parser.add_argument("--driver", default="libcuda.so.1", help="NVIDIA's libcuda.so.1, or cpu for the software device")
    parser.add_argument("--nccl", metavar="LIBRARY", help="the libnccl.so.2 that servers load; without it, none does")
    parser.add_argument("--apart", action="store_true", help="a server for each device, and programs use all of them")
    parser.add_argument("--out", type=Path, required=True, help="folder for results, a summary, and the logs")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="names that match or contain it")
    parser.add_argument("--skip", action="append", default=[], metavar="PATTERN", help="names to leave out, likewise")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) // 2), help="how many at once")
    parser.add_argument("--gpu-memory", type=float, default=120, metavar="GIB", help="device memory to fill at most")
    parser.add_argument("--native-from", type=Path, metavar="RESULTS", help="take native results from an earlier run")
    parser.add_argument("--deadline", type=float, default=None, metavar="SECONDS", help="start nothing after this time")
    parser.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="multiplies every time limit")
    parser.add_argument(
        "--isolation", choices=["always", "if-possible", "never"], default="always", help="hide the GPU from remote runs"
    )


def native_command(args: argparse.Namespace) -> list[str]:
    """What native runs begin with: on the software device there is no driver, and programs use it directly."""
    return [str(args.dist / "bin/outboard"), "run", "--local-cpu", "--"] if args.driver == "cpu" else []


def native_libraries(args: argparse.Namespace) -> str:
    """What native runs need in their library path to find the driver."""
    if args.driver == "cpu":
        return ""
    found = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], capture_output=True, check=False
    )
    return "" if found.returncode == 0 else str(Path(args.driver).resolve().parent)


class Session:
    """A server and the setting for runs; at its end the logs are packed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.started = time.monotonic()
        if args.driver == "cpu" and not args.dist:
            sys.exit("the software device is part of an installation: name it with --dist")
        args.out.mkdir(parents=True, exist_ok=True)
        args.out, args.dist = args.out.resolve(), args.dist.resolve() if args.dist else None
        folders, files = hidden.plan(args.driver)
        obstacle = hidden.possible() if args.dist and args.isolation != "never" else None
        if obstacle and args.isolation == "always":
            sys.exit(f"remote runs cannot be isolated here: {obstacle}")
        self.temporary = tempfile.TemporaryDirectory(prefix="matrix-")
        self.scratch = Path(self.temporary.name)
        self.logs = self.scratch / "logs"
        self.logs.mkdir()
        self.servers = self.start_servers() if args.dist else None
        self.devices = self.servers.devices() if self.servers else []
        self.setting = Setting(
            dist=args.dist,
            servers=self.servers.addresses() if self.servers else None,
            devices=len(self.devices) if self.servers else None,
            native_command=native_command(args),
            native_libraries=native_libraries(args),
            scratch=self.scratch / "runs",
            logs=self.logs,
            python=sys.executable,
            nvidia_smi=self.nvidia_smi(),
            folders=folders,
            files=files,
            isolated=args.isolation != "never" and not obstacle,
            earlier=self.earlier(),
            patience=args.patience,
            deadline=self.started + args.deadline if args.deadline else float("inf"),
        )

    def start_servers(self) -> Servers:
        """One server with all devices, or one for each device."""
        args = self.args
        flags = ["--nccl", args.nccl] if args.nccl else []
        all_devices = Server(args.dist / "bin/outboard", args.driver, self.logs / "server.log", flags)
        if not args.apart:
            return Servers([all_devices])
        count = len(all_devices.devices())
        all_devices.stop()
        # They are linked by TCP, too.
        flags += ["--peers", "127.0.0.0/8"]
        return Servers(
            [
                Server(
                    args.dist / "bin/outboard", args.driver, self.logs / f"server{index}.log", flags, {"CUDA_VISIBLE_DEVICES": str(index)}
                )
                for index in range(count)
            ]
        )

    def nvidia_smi(self) -> str | None:
        """A copy of the program, since the real one is hidden with the driver: a machine without a GPU may have it too."""
        found = shutil.which("nvidia-smi")
        return shutil.copy(found, self.scratch / "nvidia-smi") if found else None

    def earlier(self) -> dict[str, dict]:
        """Native results of an earlier run, told as if its devices had been those of now."""
        if not self.args.native_from:
            return {}
        text = self.args.native_from.read_text()
        for one, other in zip(json.loads(text).get("devices", []), self.devices):
            if one["name"] != other["name"]:
                sys.exit(f"{self.args.native_from} is of another kind of device, {one['name']}")
            text = text.replace(one["uuid"].removeprefix("GPU-"), other["uuid"].removeprefix("GPU-"))
        return {row["name"]: row for row in json.loads(text)["rows"]}

    def device_names(self) -> str:
        return ", ".join(device["name"] for device in self.devices)

    def capability(self) -> str | None:
        """Of the first device, as in sm_90."""
        return self.devices[0]["compute_capability"].replace(".", "") if self.devices else None

    def finish(self, name: str, rows: list[dict], more: dict) -> None:
        """Writes the results, prints the summary."""
        seconds = round(time.monotonic() - self.started, 1)
        results = {**more, "devices": self.devices, "apart": self.args.apart, "isolated": self.setting.isolated, "seconds": seconds, "rows": rows}
        (self.args.out / f"{name}.json").write_text(json.dumps(results, indent=1))
        summary = "\n".join(line(row) for row in rows) + f"\n{page.counts(rows)}, {seconds:.0f} s\n"
        (self.args.out / f"{name}.txt").write_text(summary)
        self.name = name
        if self.servers and not self.servers.are_up():
            summary += "A SERVER DIED DURING THE RUN: see server*.log among the logs\n"
        print("\n" + summary, end="", flush=True)

    name = "aborted"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self.servers:
            self.servers.stop()
        with tarfile.open(self.args.out / f"{self.name}-logs.tar.xz", "w:xz", preset=1) as archive:
            archive.add(self.logs, "logs")
        self.temporary.cleanup()


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
    return f"{row['name']:<30} {shown[0]} {shown[1]} {row['result']:<12} {note}".rstrip()
