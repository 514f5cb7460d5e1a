"""Use the GPUs of other machines from this process.

    import outboard
    outboard.connect("gpu1")        # before torch, jax, cupy or numba
    import torch

CUDA programs take the driver library that their process has loaded already, so `connect` loads Outboard's. `python -m outboard script.py` and
`outboard run -- python script.py` do the same for a script that is not to be changed.
"""

from ._command import Error, devices
from ._process import Connection, connect, local_cpu

__all__ = ["Connection", "Error", "connect", "devices", "local_cpu"]
