"""`outboard.io`: through a server that has the file, through one that has not, and without Outboard's driver library."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from conftest import DIST, end, serve

# A file, a device with memory for it, and a check of what stands there.
DEVICE = """
import ctypes, io, json, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, (name, status)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
SIZE = 10_000_019
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
# Files use the memory's context, not the thread's.
call("cuCtxSetCurrent", None)
def there(bytes):
    back = (ctypes.c_uint8 * bytes)()
    call("cuCtxSetCurrent", context)
    call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(bytes))
    call("cuCtxSetCurrent", None)
    return bytes_of(back)
bytes_of = bytes
folder = sys.argv[1]
data = bytes(i * 7 % 251 for i in range(1000)) * 10_001
open(folder + "/in", "wb").write(data[:SIZE])
class Array:
    def __init__(self, shape, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<u2", "data": (memory.value, False), "strides": strides, "version": 3}
"""

OWN = DEVICE + """
import outboard.io
with outboard.io.open(folder + "/in") as file:
    assert file.read(memory.value, SIZE) == SIZE and file.tell() == SIZE
    assert there(SIZE) == data[:SIZE]
    assert file.read(memory.value, 10) == 0
    assert file.seek(-1003, io.SEEK_END) == SIZE - 1003
    assert file.read(memory.value, SIZE) == 1003 and there(1003) == data[SIZE - 1003:SIZE]
    assert file.seek(5) == 5 and file.read(Array((10, 50))) == 1000 and there(1000) == data[5:1005]
    assert file.read(Array((10, 50), (100, 2)), 7) == 7
    assert file.pread(1, memory.value, 3) == 3 and file.tell() == 1012
    for wrong in (lambda: file.read(memory.value), lambda: file.read([1]), lambda: file.read(Array((2, 2), (2, 4))), lambda: file.read(Array((2,)), 5)):
        try: wrong()
        except (TypeError, ValueError): pass
        else: raise AssertionError("it was taken")
    try: file.write(memory.value, 1)
    except OSError: pass
    else: raise AssertionError("it was written")
    read = file.statistics()
with outboard.io.open(folder + "/out", "w+b") as file:
    assert file.pread(0, memory.value, 1) == 0
    with outboard.io.open(folder + "/in") as source:
        source.read(memory.value, SIZE)
    assert file.pwrite(3, memory.value, SIZE) == SIZE
    file.sync()
    assert os.stat(folder + "/out").st_size == SIZE + 3
    assert open(folder + "/out", "rb").read() == bytes(3) + data[:SIZE]
    written = file.statistics()
file.close()
try: file.read(memory.value, 1)
except ValueError: pass
else: raise AssertionError("it is closed")
print(json.dumps([read, written]))
"""


def counts(text):
    read, written = json.loads(text.splitlines()[-1])
    return [read["read_by_server"] > 10_000_000, read["read_here"] > 10_000_000, written["written_by_server"] > 10_000_000, written["written_here"] > 10_000_000]


@pytest.fixture
def sharing(tmp_path):
    """Where a server listens that shares the test's folder."""
    # What the folder's mount shows, and where the folder lies there.
    mounts = [line.split() for line in open("/proc/self/mountinfo")]
    inside = [line for line in mounts if os.path.commonpath([line[4], tmp_path]) == line[4]]
    mount = max(inside, key=lambda line: len(line[4]))
    source = mount[mount.index("-") + 2]
    path = os.path.join(mount[3], os.path.relpath(tmp_path, mount[4]))
    share = f"{source}{path}={tmp_path}:rw:as={os.getuid()}:{os.getgid()}"
    (tmp_path / "state").mkdir()
    child, address = serve(tmp_path / "state", "--files", share)
    yield address
    end(child)


def test_a_server_that_has_the_file_reads_and_writes_it(python, sharing, tmp_path):
    said = python("import outboard, sys; outboard.connect(sys.argv.pop(1))\n" + OWN, sharing, str(tmp_path))
    assert counts(said) == [True, False, True, False], said


KVIKIO = DEVICE + """
import kvikio
array = Array((SIZE // 2,))
with kvikio.CuFile(folder + "/in", "r") as file:
    assert file.read(array) == SIZE - 1
assert there(SIZE - 1) == data[:SIZE - 1]
with kvikio.CuFile(folder + "/out", "w") as file:
    assert file.write(array, file_offset=5) == SIZE - 1
assert open(folder + "/out", "rb").read() == bytes(5) + data[:SIZE - 1]
"""


def test_the_server_moves_files_of_kvikio(sharing, tmp_path):
    if importlib.util.find_spec("kvikio") is None:
        pytest.skip("kvikio is not installed")
    profile = tmp_path / "profile"
    environment = {**os.environ, "KVIKIO_COMPAT_MODE": "OFF", "OUTBOARD_TRANSPORT": "tcp", "OUTBOARD_PROFILE": str(profile)}
    command = [DIST / "bin/outboard", "run", "--server", sharing, "--", sys.executable, "-c", KVIKIO, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = json.loads(profile.read_text())["files"]
    assert files["read_by_servers"] == files["written_by_servers"] == 10_000_018, files


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_server_that_shares_nothing(python, server, tmp_path, monkeypatch, transport):
    # On this machine it gets the program's own descriptors; over TCP the bytes go through the program.
    monkeypatch.setenv("OUTBOARD_TRANSPORT", transport)
    said = python("import outboard, sys; outboard.connect(sys.argv.pop(1))\n" + OWN, server, str(tmp_path))
    by_server = transport == "shm"
    assert counts(said) == [by_server, not by_server] * 2, said


def test_another_driver_library_copies(python, tmp_path):
    # Outboard's software device without the table of functions for files.
    code = "import outboard.io; outboard.io._TABLE = b'another table 00'\n"
    said = python("import outboard; outboard.local_cpu()\n" + code + OWN, str(tmp_path))
    assert counts(said) == [False, True, False, True], said


def test_modes_are_checked(python, tmp_path):
    code = "import outboard.io, sys\ntry: outboard.io.open(sys.argv[1], 'a')\nexcept ValueError as error: print(error)"
    assert "r, r+, w, w+" in python(code, str(tmp_path / "x"))
