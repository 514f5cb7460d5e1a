"""Tells JAX that there is a GPU.

JAX uses its CUDA backend only where one of NVIDIA's device files exists, which is nowhere on a machine whose GPU is another's, and it has no switch
for that. It does have a way in: every module under `jax_plugins` is initialised before it looks. `outboard run` puts this one into Python's path.
"""

import os


def initialize():
    # Without a server, JAX does as it always does.
    if not os.environ.get("OUTBOARD_SERVER"):
        return
    try:
        from jax._src import hardware_utils
    except ImportError:
        return
    # Releases without the question need no answer.
    if hasattr(hardware_utils, "has_visible_nvidia_gpu"):
        hardware_utils.has_visible_nvidia_gpu = lambda: True
