"""Tests of the Python modules, with the installation that `cargo xtask stage` has laid out and the software device."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DIST = Path(os.environ.get("OUTBOARD_TEST_DIST") or Path(__file__).resolve().parents[2] / "target/dist")
# The program that plays a machine with sshd, `outboard-sshd` of the end-to-end tests.
SSHD = os.environ.get("OUTBOARD_TEST_SSHD")


# What a program does that knows nothing of Outboard: memory of the device, there and back.
COPY = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, (name, status)
call("cuInit", 0)
name, context, memory = ctypes.create_string_buffer(100), ctypes.c_void_p(), ctypes.c_uint64()
call("cuDeviceGetName", name, 100, 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
sent = (ctypes.c_uint8 * 200000)(*[i % 251 for i in range(200000)])
back = (ctypes.c_uint8 * 200000)()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(200000))
call("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(200000))
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(200000))
assert bytes(back) == bytes(sent)
print(name.value.decode())
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing that the machine or its user has set up, and the command in PATH as for a user."""
    for name in [name for name in os.environ if name.startswith("OUTBOARD_")]:
        monkeypatch.delenv(name)
    for name in ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTBOARD_CONFIG", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{DIST / 'bin'}:{os.environ['PATH']}")


def start(command, folder, says):
    """A command of Outboard's that stays, and what it says of itself once it is ready, by the pattern."""
    environment = {**os.environ, "OUTBOARD_CONFIG": "none", "XDG_CACHE_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    child = subprocess.Popen([DIST / "bin/outboard", *command], stderr=subprocess.PIPE, text=True, env=environment)
    said = ""
    for line in child.stderr:
        said += line
        found = re.search(says, re.sub(r"\x1b\[[0-9;]*m", "", line))
        if found:
            return child, found
    raise AssertionError(f"it did not come up: {said}")


def serve(folder, *flags):
    """A server on the software device, and where it listens."""
    command = ["serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--warm", "0", "--drain", "0", "--records", "none"]
    child, found = start([*command, *flags], folder, r"serving address=(\S+)")
    return child, found.group(1)


def end(child):
    child.terminate()
    child.communicate()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    child, address = serve(tmp_path_factory.mktemp("server"))
    yield address
    end(child)


@pytest.fixture
def pool(monkeypatch, tmp_path):
    """A pool of one server, which the environment names to a person."""
    state = tmp_path / "broker"
    broker, found = start(["broker", "--listen", "127.0.0.1:0", "--state", str(state)], tmp_path, r"address=(\S+) .*fingerprint=(\S+)")
    address, fingerprint = found.groups()
    started = [broker]

    def token(role):
        made = subprocess.run([DIST / "bin/outboard", "token", "create", "--json", "--broker", "--state", str(state), "--role", role, "--owner", "somebody"], capture_output=True, check=True)
        file = tmp_path / f"{role}.token"
        file.write_text(json.loads(made.stdout)["token"])
        file.chmod(0o600)
        return str(file)

    try:
        of_pool = ["--pool", f"https://{address}", "--pool-fingerprint", fingerprint, "--pool-token-file", token("server")]
        server, _ = serve(tmp_path, *of_pool, "--pool-name", "gpu1", "--tls", "on", "--socket", "none")
        started.insert(0, server)
        monkeypatch.setenv("OUTBOARD_POOL", f"https://{address}")
        monkeypatch.setenv("OUTBOARD_POOL_FINGERPRINT", fingerprint)
        monkeypatch.setenv("OUTBOARD_POOL_TOKEN_FILE", token("client"))
        yield
    finally:
        for child in started:
            end(child)


@pytest.fixture
def ssh(monkeypatch):
    """A machine that `ssh://gpu1` leads to."""
    if not SSHD:
        pytest.skip("OUTBOARD_TEST_SSHD names no machine of ssh's")
    machine = subprocess.Popen([SSHD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in machine.stdout:
        name, separator, value = line.rstrip("\n").partition("=")
        if not separator:
            break
        monkeypatch.setenv(name, value)
    else:
        raise AssertionError("the machine did not come up")
    yield "ssh://gpu1"
    machine.communicate()


@pytest.fixture
def python():
    """Runs code in an interpreter of its own: a driver that is loaded stays loaded."""

    def run(code, *arguments, status=0, **variables):
        ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env={**os.environ, **variables})
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout if status == 0 else ended.stderr

    return run
