"""What the matrix ran on: driver, compiler, packages."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

PACKAGES = (
    "torch torchvision transformers triton cupy-cuda13x jax jaxlib jax-cuda13-plugin numba numba-cuda cuda-bindings "
    "cuda-core nvidia-ml-py numpy nvidia-cudnn-cu13 nvidia-cublas nvidia-nccl-cu13"
).split()

# Run by the interpreter that runs the cases.
LIST = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""


def say(command: list[str], env: dict[str, str] | None = None) -> str:
    """What a command prints, or nothing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def packages(python: str) -> dict[str, str]:
    lines = say([python, "-c", LIST, *PACKAGES]).splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def describe(python: str, nvcc: str | None, env: dict[str, str]) -> dict[str, str]:
    """Names and versions, without anything that names one machine."""
    release = re.search(r"release ([0-9.]+)", say([nvcc, "--version"])) if nvcc else None
    driver = say(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], env).splitlines()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "NVIDIA's driver": driver[0] if driver else "none",
        "CUDA compiler": release[1] if release else "none",
        "Linux": re.sub(r"-.*", "", platform.release()),
        "processors": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "Python": say([python, "-c", "import platform; print(platform.python_version())"]) or sys.version.split()[0],
    }
