"""Has a kernel of Jupyter run a program in a cell, and returns and prints what the program does."""

import subprocess
import sys

import jupyter_client

name, *program = sys.argv[1:]
manager = jupyter_client.KernelManager(kernel_name=name)
manager.start_kernel(stderr=subprocess.DEVNULL)
client = manager.blocking_client()
client.start_channels()
try:
    client.wait_for_ready(timeout=120)
    cell = f"import subprocess; ended = subprocess.run({program!r}, capture_output=True)"
    shown = {"status": "ended.returncode", "output": "ended.stdout", "errors": "ended.stderr"}
    reply = client.execute(cell, user_expressions=shown, reply=True, timeout=240)
    if reply["content"]["status"] != "ok":
        sys.exit(f"the cell has failed: {reply['content']}")
    said = {key: eval(value["data"]["text/plain"]) for key, value in reply["content"]["user_expressions"].items()}
finally:
    client.stop_channels()
    manager.shutdown_kernel()
sys.stdout.buffer.write(said["output"])
sys.stderr.buffer.write(said["errors"])
sys.exit(said["status"])
