"""Runs tests with the devices of a server, or with the software device.

    pytest --outboard gpu1
    pytest --outboard-local-cpu

A test that needs a device says so, and is skipped with a reason where there is none:

    @pytest.mark.needs_cuda            # or needs_cuda(devices=2)
    def test_kernel(cuda_devices): ...
"""

import json
import os
import subprocess
import sys
from typing import List, NamedTuple, Optional

import pytest

from . import _process
from ._command import Error, devices

# Asks the driver in a process of its own: one that has used CUDA cannot be forked.
ASK = """
import ctypes, json
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit(json.dumps({"why": str(error)}))
count, names = ctypes.c_int(), []
for status in (cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))):
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        raise SystemExit(json.dumps({"why": (text.value or b"error %d" % status).decode()}))
for index in range(count.value):
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), index)
    names.append(name.value.decode(errors="replace"))
print(json.dumps({"names": names}))
"""


class Found(NamedTuple):
    """The devices that tests have, or why there are none."""

    names: List[str]
    why: str


_found: Optional[Found] = None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outboard", "GPUs of other machines")
    group.addoption("--outboard", metavar="SERVER", help="use this server's devices: HOST[:PORT][/INDEX],…; `default` for the configured one")
    group.addoption("--outboard-local-cpu", action="store_true", help="use Outboard's software device, without any server")
    parser.addini("outboard", "the server whose devices tests use, as for --outboard; `local-cpu` for the software device")


# Before any conftest.py is imported, as that may import torch.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    options = early_config.known_args_namespace
    server, local = options.outboard, options.outboard_local_cpu
    if server and local:
        raise pytest.UsageError("--outboard and --outboard-local-cpu exclude each other")
    if not server and not local:
        server = early_config.getini("outboard") or None
        local = server == "local-cpu"
    try:
        if local:
            _process.local_cpu()
        elif server:
            _process.connect(None if server == "default" else server)
    except Error as error:
        raise pytest.UsageError(f"outboard: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_cuda(devices=1): skip the test where there are not as many CUDA devices")


def pytest_report_header() -> Optional[str]:
    connection = _process.current()
    if not connection:
        return None
    there = found()
    return f"outboard: {connection.server or 'no server'}, {', '.join(there.names) or there.why}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_cuda"):
        _skip_below(marker.kwargs.get("devices", marker.args[0] if marker.args else 1))


@pytest.fixture(scope="session")
def cuda_devices() -> List[str]:
    """The names of the CUDA devices; skips the test where there is none."""
    _skip_below(1)
    return list(found().names)


def _skip_below(wanted: int) -> None:
    there = found()
    if len(there.names) >= wanted:
        return
    if there.names:
        pytest.skip(f"needs {wanted} CUDA devices, and there {'is one' if len(there.names) == 1 else f'are {len(there.names)}'}")
    pytest.skip(f"no CUDA device ({there.why}): run pytest with --outboard SERVER or --outboard-local-cpu")


def found() -> Found:
    """What tests have: of the server that was chosen, else of whatever driver this machine has."""
    global _found
    if _found is None:
        _found = _look()
    return _found


def _look() -> Found:
    connection = _process.current()
    # A server says it without a session's start.
    if connection and connection.server and "CUDA_VISIBLE_DEVICES" not in os.environ:
        try:
            return Found(_chosen(connection.server), "the server has none")
        except Error as error:
            return Found([], str(error))
    ended = subprocess.run([sys.executable, "-c", ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = (ended.stdout or ended.stderr).decode(errors="replace").strip()
    try:
        answer = json.loads(said)
    except ValueError:
        return Found([], f"asking the driver ended with status {ended.returncode}")
    return Found(answer.get("names", []), answer.get("why", "the driver has none"))


def _chosen(server: str) -> List[str]:
    """The names of a server's devices, in the order in which `server` lists them."""
    names = {device["index"]: device["name"] for device in devices(server)}
    listed = [part.rsplit("/", 1)[1] for part in server.split(",") if "/" in part and part.rsplit("/", 1)[1].isdigit()]
    return [names[int(index)] for index in listed] if listed else list(names.values())
