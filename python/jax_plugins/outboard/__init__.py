"""Tells JAX what it cannot find out by itself where GPUs are other machines'.

JAX initialises every module under `jax_plugins` before it looks for devices. `outboard run` puts this one into Python's path.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

# XLA's option for kernels of its own that take part in a collective, and read other devices' memory.
OPTION = "xla_gpu_experimental_use_collective_kernels"


def initialize() -> None:
    servers = os.environ.get("OUTBOARD_SERVER")
    # Without a server, JAX does as it always does.
    if not servers:
        return
    _say_that_there_is_a_gpu()
    if any(mark in servers for mark in ",[@"):
        _leave_collectives_to_nccl()


def _say_that_there_is_a_gpu() -> None:
    """JAX uses its CUDA backend only where one of NVIDIA's device files exists, and has no switch for that."""
    try:
        from jax._src import hardware_utils
    except ImportError:
        return
    # Releases without the question need no answer.
    if hasattr(hardware_utils, "has_visible_nvidia_gpu"):
        hardware_utils.has_visible_nvidia_gpu = lambda: True


def _leave_collectives_to_nccl() -> None:
    """Devices of several servers do not read each other's memory; XLA chooses its kernels without asking that."""
    flags = os.environ.get("XLA_FLAGS", "")
    # XLA ends the process when it finds an option that it does not know.
    if OPTION not in flags and all(_mentions(library, OPTION) for library in _libraries()):
        os.environ["XLA_FLAGS"] = f"{flags} --{OPTION}=".strip()


def _libraries() -> Iterator[Path]:
    """Those that read XLA's options."""
    for package, pattern in (("jaxlib", "*.so"), ("jax_plugins", "xla_cuda*/*.so")):
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            yield from (path for path in Path(folder).glob(pattern) if path.stat().st_size > 1 << 26)


def _mentions(library: Path, text: str) -> bool:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text.encode()) >= 0
