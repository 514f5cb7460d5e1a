#!/usr/bin/env python3
"""How often loops of real programs wait for a server, and what they take, natively and at several distances.

    run.py --dist DIST --driver LIBCUDA [--distances 0,0.2,1] [--transport tcp|shm] [--out DIR] [LOOP...]

A distance is the round trip that a relay adds, in milliseconds; the relay is `outboard-relay` of the end-to-end tests, beside DIST. Waits of a unit (a step,
a token, a launch) are what three times the turns need more, so that what is waited for once counts nothing. `most.json` says how many each loop may take;
more is a failure. What Outboard's own threads wait for holds up no thread of the program: it is shown, as `(background)`, and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TURNS = (3, 9)


class Server:
    """A server with NVIDIA's driver, on a port of its own."""

    def __init__(self, dist: Path, driver: str, log: Path) -> None:
        self.log = log
        command = [dist / "bin/outboard", "serve", "--driver", driver, "--listen", "127.0.0.1:0", "--log-format", "json"]
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
        self.port = int(self.first(r'"address":"[^"]*:(\d+)"'))

    def first(self, pattern: str) -> str:
        for _ in range(300):
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            time.sleep(0.1)
        raise SystemExit(f"the server did not come up: {self.log.read_text()}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Relay:
    """Adds a distance in front of a port."""

    def __init__(self, program: Path, port: int, milliseconds: float) -> None:
        each = round(milliseconds * 1000 / 2)
        self.process = subprocess.Popen([program, str(port), str(each)], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def take(prefix: list[str], name: str, turns: int, env: dict[str, str]) -> dict | None:
    command = [*prefix, sys.executable, str(HERE / "loops.py"), name, str(turns)]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode != 0:
        print(f"{name}: exit {done.returncode}: {done.stderr[-1500:]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def trips(file: Path) -> dict[str, int]:
    functions = json.loads(file.read_text())["functions"]
    return {name: counts["round_trips"] for name, counts in functions.items() if counts["round_trips"]}


def waits(prefix: list[str], name: str, env: dict[str, str], folder: Path) -> tuple[dict, dict[str, float], dict[str, int]] | None:
    """What a unit takes, its waits by function, and those of the whole longer run."""
    runs = []
    for turns in TURNS:
        file = folder / f"{name}-{turns}.json"
        said = take(prefix, name, turns, env | {"OUTBOARD_PROFILE": str(file)})
        if said is None:
            return None
        runs.append((said, trips(file)))
    (few, before), (many, after) = runs
    units = many["units"] - few["units"]
    each = {function: (count - before.get(function, 0)) / units for function, count in after.items()}
    return many, {function: count for function, count in each.items() if count > 0.002}, after


def measure(args: argparse.Namespace, server: Server, name: str, out: Path) -> dict:
    native = {"LD_LIBRARY_PATH": str(Path(args.driver).parent)}
    row: dict = {"loop": name, "native": take([], name, TURNS[0], native), "distances": {}}
    for distance in args.distances.split(","):
        relay = Relay(args.relay, server.port, float(distance)) if float(distance) else None
        port = relay.port if relay else server.port
        prefix = [str(args.dist / "bin/outboard"), "run", "--server", f"127.0.0.1:{port}", "--"]
        found = waits(prefix, name, {"OUTBOARD_TRANSPORT": args.transport}, out)
        if relay:
            relay.stop()
        if found:
            said, each, whole = found
            row["distances"][distance] = {"seconds": said["seconds"], "waits": each, "whole": whole}
    return row


def line(row: dict) -> str:
    native = row["native"]
    text = f"{row['loop']:<16} native {1e6 * native['seconds']:.0f} us" if native else f"{row['loop']:<16} native failed"
    for distance, found in row["distances"].items():
        waited = found["waits"]
        text += f" | {distance} ms: {1e6 * found['seconds']:.0f} us, {held_up(waited):.2f} waits ({show(waited)})"
    return text


def held_up(counts: dict[str, float]) -> float:
    """Waits that hold up a thread of the program."""
    return sum(count for function, count in counts.items() if function != "(background)")


def show(counts: dict[str, float]) -> str:
    best = sorted(counts.items(), key=lambda pair: -pair[1])[:9]
    return ", ".join(f"{name} {count:.3g}" for name, count in best)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--relay", type=Path, help="the relay's program")
    parser.add_argument("--distances", default="0")
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--deadline", type=float, default=1e9, help="start nothing after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="loops at once: for counting, not for timing")
    parser.add_argument("loops", nargs="*")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="outboard-waits-"))
    out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE))
    import loops

    most = json.loads((HERE / "most.json").read_text())
    started, rows = time.monotonic(), []
    server = Server(args.dist, args.driver, out / "server.log")

    def one(name: str) -> dict:
        if time.monotonic() - started > args.deadline:
            print(f"{name}: left out, the time is up", flush=True)
            return {}
        row = measure(args, server, name, out)
        total = max((held_up(found["waits"]) for found in row["distances"].values()), default=0)
        row["failed"] = not row["distances"] or total > most.get(name, 1e9)
        print(line(row) + (f"  FAILED: {most.get(name)} waits are allowed" if row["failed"] else ""), flush=True)
        return row

    try:
        with ThreadPoolExecutor(args.jobs) as pool:
            rows = [row for row in pool.map(one, args.loops or loops.LOOPS) if row]
    finally:
        server.stop()
    failed = sum(row["failed"] for row in rows)
    (out / "waits.json").write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} loops, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
