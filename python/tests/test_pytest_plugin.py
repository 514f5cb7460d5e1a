"""The plugin, in runs of pytest of their own."""

import subprocess
import sys

import pytest

# A conftest.py that loads the driver, as one that imports torch does.
CONFTEST = "import ctypes\nctypes.CDLL('libcuda.so.1')\n"
TEST = """
import ctypes, pytest

@pytest.mark.needs_cuda
def test_has_one(cuda_devices):
    cuda, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(100)
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetName(name, 100, 0) == 0
    assert [name.value.decode()] == cuda_devices

@pytest.mark.needs_cuda(devices=2)
def test_has_two():
    pass

def test_needs_none():
    pass
"""


@pytest.fixture
def run(pytester):
    def run(*flags):
        return pytester.runpytest_subprocess("-rs", *flags)

    return run


def test_tests_use_a_server(pytester, run, server):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    ended = run("--outboard", server)
    ended.assert_outcomes(passed=2, skipped=1)
    ended.stdout.fnmatch_lines([f"outboard: {server}, Outboard CPU*", "*needs 2 CUDA devices, and there is one*"])


def test_tests_use_the_software_device(pytester, run):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    ended = run("--outboard-local-cpu")
    ended.assert_outcomes(passed=2, skipped=1)
    ended.stdout.fnmatch_lines(["outboard: no server, Outboard CPU*"])


@pytest.mark.parametrize("value", ["local-cpu", "server"])
def test_a_file_of_settings_chooses_too(pytester, run, server, value):
    pytester.makepyfile(TEST)
    pytester.makeini(f"[pytest]\noutboard = {server if value == 'server' else value}\n")
    run("--strict-markers").assert_outcomes(passed=2, skipped=1)


def test_without_a_device_tests_are_skipped_with_a_reason(pytester, run):
    if subprocess.run([sys.executable, "-c", CONFTEST], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this machine has a driver of its own")
    pytester.makepyfile(TEST)
    ended = run()
    ended.assert_outcomes(passed=1, skipped=2)
    ended.stdout.fnmatch_lines(["*no CUDA device (*libcuda.so.1*): run pytest with --outboard SERVER*"])
    ended.stdout.no_fnmatch_line("outboard: *")


def test_a_server_that_does_not_answer_ends_the_run(pytester, run):
    pytester.makepyfile(TEST)
    ended = run("--outboard", "127.0.0.1:1")
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["ERROR: outboard: nothing listens at 127.0.0.1:1*OB0101*"])
    both = run("--outboard", "127.0.0.1:1", "--outboard-local-cpu")
    assert both.ret == pytest.ExitCode.USAGE_ERROR
    both.stderr.fnmatch_lines(["*exclude each other*"])


def test_hidden_devices_are_none(pytester, run, server, monkeypatch):
    pytester.makepyfile(TEST)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run("--outboard", server).assert_outcomes(passed=1, skipped=2)
