"""`connect`, `local_cpu`, `devices` and `python -m outboard`."""

import json
import os
import subprocess
import sys

import pytest
from conftest import COPY, DIST, serve
from outboard._command import Error, _failure

CONNECT = "import sys, outboard; print(outboard.connect(*sys.argv[1:]).server)\n"


def test_a_process_uses_a_server_s_device(python, server):
    address, name = python(CONNECT + COPY, server).splitlines()
    assert address == server and name.startswith("Outboard CPU")
    # Children have it, too, and without a server named the one of the environment is meant.
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    assert python("import outboard; outboard.connect()\n" + child, COPY, OUTBOARD_SERVER=server).startswith("Outboard CPU")


def test_a_process_is_its_own_device(python):
    assert python("import outboard; print(outboard.local_cpu().server)\n" + COPY).startswith("None\nOutboard CPU")


def test_a_server_that_does_not_answer_is_an_error_before_anything_is_set(python):
    code = "import os, outboard\nbefore = dict(os.environ)\ntry: outboard.connect('127.0.0.1:1')\nexcept outboard.Error as error: print(error.code, error)\nprint(before == dict(os.environ), outboard._process.drivers())"
    said = python(code)
    assert said.startswith("OB0101 nothing listens at 127.0.0.1:1; ") and said.endswith("True []\n"), said
    # Unless it is not to be asked.
    assert python("import outboard; print(outboard.connect('127.0.0.1:1', check=False).server)") == "127.0.0.1:1\n"


def test_another_driver_that_is_loaded_is_an_error(python, server):
    load = f"import ctypes; ctypes.CDLL({str(DIST / 'lib/outboard/cpu/libcuda.so.1')!r})\n"
    said = python(load + CONNECT, server, status=1)
    assert "has loaded the driver library" in said and "before anything uses CUDA" in said, said
    twice = "import outboard, sys; outboard.connect(sys.argv[1]); outboard.connect(sys.argv[2], check=False)"
    assert "cannot change to 127.0.0.1:1" in python(twice, server, "127.0.0.1:1", status=1)
    python(twice, server, server)


def test_devices_are_listed(python, server):
    code = "import json, sys, outboard; print(json.dumps(outboard.devices(*sys.argv[1:])))"
    (device,) = json.loads(python(code, server))
    assert device["name"].startswith("Outboard CPU") and device["index"] == 0 and device["memory_bytes"] > 0
    (again,) = json.loads(python(code, OUTBOARD_SERVER=server))
    lasting = ("index", "name", "uuid", "compute_capability", "memory_bytes", "sharing")
    assert [again[name] for name in lasting] == [device[name] for name in lasting] and again.keys() == device.keys()


def test_a_token_is_shown_and_in_no_command_line(python, tmp_path):
    create = ["token", "create", "--json", "--state", str(tmp_path), "--owner", "alice", "--address", "127.0.0.1"]
    made = json.loads(subprocess.run([DIST / "bin/outboard", *create], check=True, capture_output=True).stdout)
    token, fingerprint = made["login"][len("outboard://") :].split("@")[0], made["login"].rsplit("/", 1)[1]
    child, address = serve(tmp_path, "--tls", "on", "--require-authentication", "--state", str(tmp_path))
    try:
        connect = "import sys, outboard; outboard.connect(sys.argv[1], token=sys.argv[2] or None, fingerprint=sys.argv[3])\n"
        assert python(connect + COPY, address, token, fingerprint).startswith("Outboard CPU")
        said = python(connect, address, "", fingerprint, status=1)
        assert "OB0401" in said and token not in said, said
    finally:
        child.terminate()
        child.communicate()


def test_a_context_is_a_server_by_name(python, server, tmp_path):
    settings = tmp_path / "outboard.toml"
    settings.write_text(f'[contexts.here]\nserver = "{server}"\n')
    connect = "import outboard; print(outboard.connect(context='here').server)\n"
    chosen = {"OUTBOARD_CONFIG": str(settings)}
    assert python(connect + COPY, **chosen).startswith(f"{server}\nOutboard CPU")
    assert "OB0708" in python("import outboard; outboard.connect(context='there')", status=1, **chosen)
    for other in ("server='gpu1'", "token='x'"):
        assert "leave" in python(f"import outboard; outboard.connect(context='here', {other})", status=1, **chosen)


@pytest.mark.parametrize("local", [True, False])
def test_the_module_runs_programs(server, tmp_path, local):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])\n" + COPY)

    def run(*words):
        flags = ["--local-cpu"] if local else ["--server", server]
        ended = subprocess.run([sys.executable, "-m", "outboard", *flags, *words], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert run(str(script), "--server", "x").startswith("['--server', 'x']\nOutboard CPU")
    assert run("-c", COPY).startswith("Outboard CPU")
    assert run("--", "sh", "-c", "echo $LD_LIBRARY_PATH").strip().split(":")[0].startswith(str(DIST / "lib/outboard"))


def test_the_module_says_how_it_is_used():
    usage = subprocess.run([sys.executable, "-m", "outboard", "--local-cpu"], capture_output=True, text=True)
    assert usage.returncode == 2 and "SCRIPT.py" in usage.stderr


def test_without_the_command_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    from outboard import _command

    monkeypatch.setattr(_command, "_script_folders", lambda: [])
    monkeypatch.setattr(_command, "__file__", "/x/y/z/outboard/_command.py")
    with pytest.raises(Error, match="is not installed"):
        _command.find()


def test_what_the_command_says_is_one_sentence():
    said = "Error: OB0101\n\n  × nothing listens at a very long\n  │ name\n  help: start a server,\n        or not\n  `outboard explain OB0101` says more.\n"
    error = _failure(said)
    assert str(error) == "nothing listens at a very long name; start a server, or not [OB0101; `outboard explain OB0101` says more]"
    assert (error.code, _failure("no code").code) == ("OB0101", None)
