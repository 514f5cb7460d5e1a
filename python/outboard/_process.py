"""Gives this process Outboard's driver library."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from . import _command
from ._command import Error

SERVER = "OUTBOARD_SERVER"
# Packages that look for a driver; the name is what to advise.
USERS = ("torch", "jax", "jaxlib", "cupy", "numba.cuda", "triton", "tensorflow", "cuda.bindings", "pycuda")


class Connection(NamedTuple):
    """What this process uses."""

    server: Optional[str]
    """HOST:PORT and its devices; none for the software device in this process."""
    library: str
    """The driver library."""


_connection: Optional[Connection] = None


def current() -> Optional[Connection]:
    """What `connect` or `local_cpu` has chosen in this process."""
    return _connection


def connect(
    server: Optional[str] = None,
    *,
    token: Optional[str] = None,
    context: Optional[str] = None,
    token_file: Optional[str] = None,
    fingerprint: Optional[str] = None,
    check: bool = True,
) -> Connection:
    """Has this process, and those that it starts, use the devices of a server.

    `server` is HOST[:PORT][/INDEX],…; without it OUTBOARD_SERVER counts, then the configuration, then this machine. Call it before anything uses CUDA:
    a driver library that is loaded stays loaded. With `check`, a server that does not answer is an error now instead of in the first CUDA call.
    """
    flags = _command.flags(server, context, token_file, fingerprint, token) + (["--check"] if check else [])
    settings = {} if token is None else {"OUTBOARD_TOKEN": token}
    return _choose(flags, settings, "client")


def local_cpu() -> Connection:
    """Has this process, and those that it starts, use the software device, without any server."""
    return _choose(["--local-cpu"], {}, "cpu")


def _choose(flags: List[str], settings: Dict[str, str], kind: str) -> Connection:
    global _connection
    loaded = drivers()
    variables = _command.ask(["env", "--format", "json", *flags], {**os.environ, **settings})
    variables = {**settings, **variables}
    library = Path(variables["LD_LIBRARY_PATH"].split(":")[0]) / "libcuda.so.1"
    wanted = Connection(variables.get(SERVER, os.environ.get(SERVER)) if kind == "client" else None, str(library))
    _refuse_another(loaded, library, wanted)
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Numba tries a name that a wheel does not have, and that another driver may have.
    os.environ.setdefault("NUMBA_CUDA_DRIVER", str(library))
    stand_ins = {"OUTBOARD_NCCL": "libnccl.so.2", "OUTBOARD_CUFILE": "libcufile.so.0"}
    wanted_ones = [name for variable, name in stand_ins.items() if os.environ.get(variable) != "off"]
    for name in ["libcuda.so.1", "libnvidia-ml.so.1", *wanted_ones]:
        path = library.with_name(name)
        if path.exists():
            _load(path)
    modules = str(library.parent.parent / "python")
    if kind == "client" and os.path.isdir(modules) and modules not in sys.path:
        # Behind everything else: it holds JAX's way in, which an installation by pip has already.
        sys.path.append(modules)
    _connection = wanted
    return wanted


def _load(path: Path) -> None:
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}") from None


def _refuse_another(loaded: List[str], library: Path, wanted: Connection) -> None:
    if not loaded:
        return
    ours = str(library.resolve())
    others = [path for path in loaded if path != ours]
    if others:
        users = [name for name in USERS if name in sys.modules]
        by = f", perhaps by {', '.join(users)}" if users else ""
        raise Error(
            f"this process has loaded the driver library {others[0]} already{by}, and cannot change to {library}: call outboard.connect or "
            "outboard.local_cpu before anything uses CUDA, or start the program by `python -m outboard`"
        )
    # What `outboard run` or an earlier call has chosen; the library reads the variable once.
    before = _connection.server if _connection else os.environ.get(SERVER)
    if before != wanted.server:
        raise Error(f"this process uses {before or 'the software device'} already and cannot change to {wanted.server}: choose once, before anything uses CUDA")


def drivers() -> List[str]:
    """The driver libraries that this process has loaded."""
    found = []
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            lines = maps.readlines()
    except OSError:
        return []
    for line in lines:
        # Address, rights, offset, device, inode, path.
        fields = line.rstrip("\n").split(None, 5)
        path = fields[5] if len(fields) > 5 else ""
        name = os.path.basename(path)
        if (name.startswith("libcuda.so") or name == "liboutboard-cpu.so") and path not in found:
            found.append(path)
    return found
