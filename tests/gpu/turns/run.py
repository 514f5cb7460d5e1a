#!/usr/bin/env python3
"""What loops take natively, through shared memory and over TCP, in turns: each turn is a process of its own.

    run.py --dist DIST --driver LIBCUDA [--ways native,shm,tcp] [--rounds 5] [--out FILE] [LOOP...]

Without LOOP all of `loops.py`. The table has the median of the processes' medians, the worst of them, and both as multiples of native's. For how far
processes of one loop differ, ask for many rounds: `run.py ... --rounds 20 decode`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from waits.run import Server  # noqa: E402

LIMIT = 300


def command(args: argparse.Namespace, way: str, port: int) -> tuple[list[str], dict[str, str]]:
    """How a process goes that way, and its environment."""
    if way == "native":
        return [], {"LD_LIBRARY_PATH": str(Path(args.driver).parent)} if "/" in args.driver else {}
    return [str(args.dist / "bin/outboard"), "run", "--server", f"127.0.0.1:{port}", "--"], {"OUTBOARD_TRANSPORT": way}


def take(args: argparse.Namespace, way: str, port: int, loop: str) -> float | None:
    """The median of a process's units, in seconds; none if it failed."""
    prefix, env = command(args, way, port)
    call = [*prefix, sys.executable, str(HERE / "loops.py"), loop]
    done = subprocess.run(call, env=os.environ | env, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        print(f"{loop}, {way}: exit {done.returncode}: {done.stderr[-1500:]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(loop: str, found: dict[str, list[float]]) -> None:
    native = found.get("native")
    for way, seconds in found.items():
        if not seconds:
            print(f"{loop:<14} {way:<7} failed", flush=True)
            continue
        median, worst = statistics.median(seconds), max(seconds)
        text = f"{loop:<14} {way:<7} median {1e6 * median:9.1f} us   worst {1e6 * worst:9.1f} us   of {len(seconds)}"
        if native and way != "native":
            text += f"   {median / statistics.median(native):5.2f} x native, worst {worst / max(native):5.2f} x its worst"
        print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--ways", default="native,shm,tcp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where all that was measured goes, as JSON")
    parser.add_argument("loops", nargs="*")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import loops

    ways, all_found = args.ways.split(","), {}
    server = Server(args.dist, args.driver, Path(tempfile.mkdtemp(prefix="outboard-turns-")) / "server.log")
    try:
        for loop in args.loops or loops.LOOPS:
            found: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way in ways:
                    seconds = take(args, way, server.port, loop)
                    if seconds is not None:
                        found[way].append(seconds)
            table(loop, found)
            all_found[loop] = found
    finally:
        server.stop()
    if args.out:
        args.out.write_text(json.dumps(all_found, indent=1))
    return 0 if all(seconds for found in all_found.values() for seconds in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
