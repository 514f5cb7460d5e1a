"""Kernels that `outboard jupyter install` has registered, as Jupyter starts, interrupts, restarts and ends them."""

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import COPY, DIST

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
jupyter_client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")

PATIENCE = 60
OUTBOARD = DIST / "bin/outboard"


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """Folders of Jupyter's own for each test."""
    for name in ("JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DATA", "CONFIG", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def jupyter(*words, status=0, **variables):
    ended = subprocess.run([OUTBOARD, "jupyter", *words], capture_output=True, text=True, env={**os.environ, **variables})
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout if status == 0 else ended.stderr


def install(*words):
    return jupyter("install", "--python", sys.executable, *words)


@pytest.fixture
def kernel():
    """Starts a kernel by its name; the last thing is that it is shut down."""
    started = []

    def start(name):
        manager = jupyter_client.KernelManager(kernel_name=name)
        manager.start_kernel(stderr=subprocess.DEVNULL)
        client = manager.blocking_client()
        client.start_channels()
        started.append((manager, client))
        client.wait_for_ready(timeout=PATIENCE)
        return manager, client

    yield start
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def cell(client, code):
    """What a cell prints, or the name of its error."""
    return ended(client, client.execute(code))


def ended(client, cell_id):
    printed, error = "", None
    deadline = time.monotonic() + PATIENCE
    while True:
        message = client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") != cell_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            printed += content["text"]
        elif kind == "error":
            error = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            return error or printed


def until(check, what):
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_cell_uses_the_server_s_device_and_can_be_interrupted(kernel, server):
    said = install("--server", server, "--display-name", "On $HOME")
    assert "`On $HOME`" in said and f"--server={server}" in said
    manager, client = kernel("outboard")
    assert manager.kernel_spec.display_name == "On $HOME" and manager.kernel_spec.interrupt_mode == "signal"
    assert cell(client, COPY).startswith("Outboard CPU")

    # A cell that asks the device without end: the interrupt arrives between its calls.
    looping = client.execute("print('begins', flush=True)\nwhile True: call('cuMemcpyDtoH_v2', back, memory, ctypes.c_size_t(200000))")
    time.sleep(0.3)
    manager.interrupt_kernel()
    assert ended(client, looping) == "KeyboardInterrupt"
    assert cell(client, "call('cuCtxSynchronize'); print('goes on')") == "goes on\n"

    first = cell(client, "import os; print(os.getpid())")
    manager.restart_kernel()
    client.wait_for_ready(timeout=PATIENCE)
    assert cell(client, "memory") == "NameError"
    assert cell(client, COPY + "import os; print(os.getpid())").splitlines()[1] != first.strip()


def test_the_session_ends_with_the_kernel(kernel, server):
    listed = [OUTBOARD, "sessions", "--json", "--server", server]
    sessions = lambda: {session["id"] for session in json.loads(subprocess.run(listed, capture_output=True, check=True).stdout)["sessions"]}
    # Of kernels that were killed, sessions stay for a while.
    before = sessions()
    install("--server", server)
    manager, client = kernel("outboard")
    assert cell(client, COPY).startswith("Outboard CPU") and len(sessions() - before) == 1
    client.shutdown()
    until(lambda: not manager.is_alive(), "the kernel has not ended")
    until(lambda: not sessions() - before, "the session has not ended")


# What Jupyter is to a kernel: it starts it and stays. It prints its kernel's process, and that which it has started.
JUPYTER = """
import jupyter_client, sys, time
manager = jupyter_client.KernelManager(kernel_name="outboard")
manager.start_kernel()
client = manager.blocking_client()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive("import os; print(os.getpid(), os.getppid(), flush=True)")
manager.interrupt_kernel()
client.execute_interactive(sys.argv[1])
time.sleep(600)
"""


def test_a_kernel_with_a_server_of_its_own_ends_with_jupyter(monkeypatch):
    monkeypatch.setenv("OUTBOARD_LOCAL_DRIVER", "cpu")
    install("--server", "local")
    jupyter = subprocess.Popen([sys.executable, "-c", JUPYTER, COPY], stdout=subprocess.PIPE, text=True)
    try:
        processes = [int(word) for word in jupyter.stdout.readline().split()]
        name = jupyter.stdout.readline()
    finally:
        jupyter.kill()
        jupyter.wait()
    assert len(processes) == 2 and processes[1] != jupyter.pid and name.startswith("Outboard CPU"), (processes, name)
    until(lambda: not any(os.path.exists(f"/proc/{process}") for process in processes), f"{processes} go on without Jupyter")


def test_a_kernel_has_a_lease_as_long_as_it_lives(kernel, pool):
    leases = lambda: json.loads(subprocess.run([OUTBOARD, "pool", "leases", "--json"], capture_output=True, check=True).stdout)
    until(lambda: json.loads(subprocess.run([OUTBOARD, "pool", "devices", "--json"], capture_output=True, check=True).stdout), "the server has not come")
    install("--gpus", "1")
    manager, client = kernel("outboard")
    assert cell(client, COPY).startswith("Outboard CPU")
    (lease,) = leases()
    manager.restart_kernel()
    client.wait_for_ready(timeout=PATIENCE)
    assert cell(client, COPY).startswith("Outboard CPU")
    until(lambda: len(leases()) == 1 and leases() != [lease], "the lease of before stays")
    client.shutdown()
    until(lambda: not leases(), "the lease has not ended")


def test_a_kernel_s_server_behind_ssh_ends_with_it(kernel, ssh):
    install("--server", ssh)
    manager, client = kernel("outboard")
    assert cell(client, COPY).startswith("Outboard CPU")
    own = cell(client, "import os; print(os.getppid())").strip()
    assert os.path.exists(f"/proc/{own}")
    client.shutdown()
    until(lambda: not manager.is_alive(), "the kernel has not ended")
    until(lambda: not os.path.exists(f"/proc/{own}"), "`outboard run` has not ended")


def test_kernels_are_listed_and_removed(server, tmp_path):
    install("--server", server)
    install("--name", "far", "--display-name", "Far", "--prefix", str(tmp_path / "prefix"), "--local-cpu")
    other = tmp_path / "data/kernels/other"
    other.mkdir()
    (other / "kernel.json").write_text('{"argv": ["python"], "display_name": "Other", "language": "python"}')

    (kernel,) = json.loads(jupyter("list", "--json"))
    assert kernel["name"] == "outboard" and kernel["display_name"] == f"Python 3 (Outboard: {server})"
    assert kernel["argv"][:3] == [str(OUTBOARD), "run", f"--server={server}"] and kernel["argv"][-1] == "{connection_file}"
    assert [name for name in jupyter_client.kernelspec.KernelSpecManager().find_kernel_specs() if name != "python3"] == ["other", "outboard"]
    far = tmp_path / "prefix/share/jupyter/kernels/far"
    assert str(far) in jupyter("list", "--prefix", str(tmp_path / "prefix"))

    assert "something else has made" in jupyter("install", "--python", sys.executable, "--name", "other", status=1)
    assert "has registered no kernel other" in jupyter("remove", "other", status=1) and other.exists()
    jupyter("remove", "outboard")
    jupyter("remove", "far", "--prefix", str(tmp_path / "prefix"))
    assert not far.exists() and "There are no kernels" in jupyter("list")


def test_what_would_not_start_is_said_at_once(tmp_path):
    nowhere = ["install", "--python", sys.executable, "--server", "127.0.0.1:1"]
    said = subprocess.run([OUTBOARD, "jupyter", *nowhere], capture_output=True, text=True, env={**os.environ, "OUTBOARD_TOKEN": "obt_x"})
    assert said.returncode == 0 and "the kernel would not start: nothing listens at 127.0.0.1:1" in said.stderr, said.stderr
    assert "OUTBOARD_TOKEN is not written" in said.stderr and "obt_x" not in (tmp_path / "data/kernels/outboard/kernel.json").read_text()
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
    bare.chmod(0o755)
    said = jupyter("install", "--python", str(bare), status=1)
    assert "No module named" in said and "-m pip install ipykernel" in said, said
