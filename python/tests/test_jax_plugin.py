"""What the module that JAX initialises tells XLA."""

import pytest

OPTION = "--xla_gpu_experimental_use_collective_kernels="
CODE = """
import os
import jax_plugins.outboard
jax_plugins.outboard.initialize()
print(os.environ.get("XLA_FLAGS", ""))
"""


@pytest.fixture
def xla(tmp_path):
    """Libraries as large as XLA's, each with this text, on Python's path."""

    def make(*texts):
        (tmp_path / "jaxlib").mkdir()
        for number, text in enumerate(texts):
            with (tmp_path / f"jaxlib/library{number}.so").open("wb") as library:
                library.truncate(65 << 20)
                library.seek(64 << 20)
                library.write(text.encode())
        return str(tmp_path)

    return make


def flags(python, path, servers, **env):
    return python(f"import sys; sys.path.append({path!r})\n" + CODE, OUTBOARD_SERVER=servers, **env).strip()


@pytest.mark.parametrize("servers", ["gpu1,gpu2", "gpu[1-4]", "@/etc/outboard/servers"])
def test_devices_of_several_servers_leave_collectives_to_nccl(python, xla, servers):
    path = xla(OPTION, OPTION)
    assert flags(python, path, servers) == OPTION
    assert flags(python, path, servers, XLA_FLAGS="--other") == f"--other {OPTION}"
    assert flags(python, path, servers, XLA_FLAGS=f"{OPTION}ALL_REDUCE") == f"{OPTION}ALL_REDUCE"


def test_one_server_and_an_xla_without_the_option_are_left_alone(python, xla):
    path = xla(OPTION, "another release")
    assert flags(python, path, "gpu1") == ""
    assert flags(python, path, "gpu1,gpu2") == ""
