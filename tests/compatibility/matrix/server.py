"""One or several `outboard serve`, for as long as the matrix runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

STARTUP_SECONDS = 60


class Server:
    """A running server on a free port of this machine."""

    def __init__(
        self, outboard: Path, driver: str, log: Path, flags: list[str] | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.outboard, self.driver, self.log = outboard, driver, log
        self.flags, self.env = flags or [], {**os.environ, **(env or {})}
        self.address = ""
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [
                    *[str(self.outboard), "serve", "--driver", self.driver, "--listen", "127.0.0.1:0"],
                    *["--log-format", "json", *self.flags],
                ],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline and self.child.poll() is None:
            said = re.findall(r'"address":"([^"]+)"', self.log.read_text(errors="replace"))
            if said:
                self.address = said[-1]
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the server did not come up:\n{self.log.read_text(errors='replace')}")

    def devices(self) -> list[dict]:
        """What it offers."""
        asked = subprocess.run(
            [str(self.outboard), "devices", "--json", "--server", self.address],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode != 0:
            raise RuntimeError(f"`outboard devices` fails:\n{asked.stderr}")
        return json.loads(asked.stdout)["devices"]

    def is_up(self) -> bool:
        return self.child.poll() is None

    def stop(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Servers:
    """Those whose devices a program sees, in order."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers

    def addresses(self) -> str:
        """The list that `outboard run --server` takes."""
        return ",".join(server.address for server in self.servers)

    def devices(self) -> list[dict]:
        return [device for server in self.servers for device in server.devices()]

    def are_up(self) -> bool:
        return all(server.is_up() for server in self.servers)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
