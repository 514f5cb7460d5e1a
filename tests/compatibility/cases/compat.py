"""What the cases print, so that two runs can be compared line by line."""

from __future__ import annotations

import hashlib
import os
import re
import sys


def _bytes(array: object) -> tuple[str, bytes]:
    """(type and shape, content) of an array of any framework."""
    for convert in ("detach", "cpu"):  # PyTorch
        if hasattr(array, convert):
            array = getattr(array, convert)()
    if type(array).__module__.startswith("torch"):
        import torch

        array = array.resolve_conj().resolve_neg()
        kind = str(array.dtype).removeprefix("torch.")
        flat = array.contiguous().reshape(-1).view(torch.uint8) if array.numel() else array.to(torch.uint8)
        return f"{kind}{list(array.shape)}", flat.numpy().tobytes()
    if hasattr(array, "get"):  # CuPy
        array = array.get()
    if hasattr(array, "copy_to_host"):  # Numba
        array = array.copy_to_host()
    import numpy

    array = numpy.asarray(array)
    return f"{array.dtype}{list(array.shape)}", numpy.ascontiguousarray(array).tobytes()


def exact(name: str, *arrays: object) -> None:
    """A checksum of all bytes: the runs must agree in every bit."""
    for index, array in enumerate(arrays):
        kind, content = _bytes(array)
        label = name if len(arrays) == 1 else f"{name}[{index}]"
        print(f"{label}: {kind} {hashlib.sha256(content).hexdigest()[:16]}", flush=True)


def show(name: str, *values: object) -> None:
    """Plain values, floats with all their digits."""
    print(f"{name}: {' '.join(repr(value) if isinstance(value, float) else str(value) for value in values)}", flush=True)


def near(name: str, values: object, tolerance: float) -> None:
    """Numbers that may differ by a tolerance, relative or absolute."""
    flat = values if isinstance(values, (list, tuple)) else [values]
    print(f"{name} ~{tolerance:g}: {' '.join(repr(float(value)) for value in flat)}", flush=True)


def info(text: str) -> None:
    """Something that is not compared."""
    print(f"info {text}", flush=True)


def check(what: str, holds: object) -> None:
    """Ends the case unless the condition holds."""
    if not bool(holds):
        sys.exit(f"FAILED: {what}")
    print(f"{what}: yes", flush=True)


DRIVER = re.compile(r"/(lib(cuda|nvidia-[a-z0-9-]+|cudadebugger)\.so[.0-9]*)$")


def drivers_mapped() -> list[str]:
    """The files of driver libraries that this process has mapped."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/") > 1}
    return sorted(path for path in paths if DRIVER.search(path))


def foreign_drivers() -> list[str]:
    """Mapped driver libraries that are not of the installation under test."""
    ours = os.environ["COMPAT_REMOTE"]
    return [path for path in drivers_mapped() if not path.startswith(ours + "/")]


def _at_exit() -> None:
    foreign = foreign_drivers()
    if foreign:
        # An exit code can't be set any more; the output says it, and differs.
        print(f"FAILED: mapped from elsewhere: {foreign}", flush=True)


if os.environ.get("COMPAT_REMOTE"):
    import atexit

    atexit.register(_at_exit)
