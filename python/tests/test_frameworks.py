"""A framework that makes its kernels while it runs, in a process that has chosen its server by itself. `xtask/src/python.rs`
installs what it needs."""

import importlib.util
from pathlib import Path

import pytest

KERNEL = """
import numpy
from numba import cuda

@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]

x = numpy.arange(100000, dtype=numpy.float32)
on_device = cuda.to_device(numpy.ones_like(x))
saxpy[(x.size + 255) // 256, 256](2.0, cuda.to_device(x), on_device)
assert (on_device.copy_to_host() == 2 * x + 1).all()
print(cuda.get_current_device().name)
"""


@pytest.fixture
def toolkit(tmp_path):
    """What Numba wants of CUDA's toolkit, laid out as it looks for it: the packages leave out versions in names."""
    for module in ("numba", "numpy", "cuda.bindings", "nvidia.cuda_nvcc", "nvidia.cuda_runtime"):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip(f"{module} is not installed")
    folder = lambda name: Path(importlib.util.find_spec(name).submodule_search_locations[0])
    nvvm, runtime = folder("nvidia.cuda_nvcc") / "nvvm", folder("nvidia.cuda_runtime") / "lib"
    (tmp_path / "nvvm/lib64").mkdir(parents=True)
    (tmp_path / "lib64").mkdir()
    (tmp_path / "nvvm/libdevice").symlink_to(nvvm / "libdevice")
    (tmp_path / "nvvm/lib64/libnvvm.so.4.0.0").symlink_to(nvvm / "lib64/libnvvm.so")
    (tmp_path / "lib64/libcudart.so.12").symlink_to(runtime / "libcudart.so.12")
    # Its own binding calls functions of CUDA 13 as they were in 12.
    return {"CUDA_HOME": str(tmp_path), "NUMBA_CUDA_USE_NVIDIA_BINDING": "1"}


@pytest.mark.parametrize("choice", ["connect", "local_cpu"])
def test_numba_runs_on_the_device_that_a_process_has_chosen(python, server, toolkit, choice):
    address = [server] if choice == "connect" else []
    said = python(f"import outboard, sys; outboard.{choice}(*sys.argv[1:])\n" + KERNEL, *address, **toolkit)
    assert said.startswith("Outboard CPU")
