"""What programs ask through nvidia-ml-py. Run by nvml.rs; the first argument says what to do."""

import ctypes
import os
import sys
import threading
import time

import pynvml as nvml


def fails(error, function, *arguments):
    try:
        result = function(*arguments)
    except nvml.NVMLError as raised:
        assert raised.value == error, f"{function.__name__}: {raised}"
    else:
        raise AssertionError(f"{function.__name__} gives {result}")


def ask(handle):
    """Facts that stay the same."""
    return (
        nvml.nvmlDeviceGetName(handle),
        nvml.nvmlDeviceGetUUID(handle),
        nvml.nvmlDeviceGetPciInfo(handle).busId,
        nvml.nvmlDeviceGetMemoryInfo(handle).total,
        nvml.nvmlDeviceGetCudaComputeCapability(handle),
    )


def devices():
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        print(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))


def questions():
    fails(nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)
    nvml.nvmlInit()
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlSystemGetDriverVersion().split(".")[0].isdigit()
    assert nvml.nvmlSystemGetNVMLVersion()
    assert nvml.nvmlSystemGetCudaDriverVersion() >= 12000
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid, address, total, capability = ask(handle)
        assert name and total > 0 and capability[0] >= 7
        for same in (nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(address)):
            assert nvml.nvmlDeviceGetIndex(same) == index
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        assert memory.total == total and memory.used + memory.free <= total
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        assert 0 <= rates.gpu <= 100 and 0 <= rates.memory <= 100
        assert nvml.nvmlDeviceGetComputeMode(handle) == nvml.NVML_COMPUTEMODE_DEFAULT
        assert nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) > 0
        assert nvml.nvmlDeviceGetPerformanceState(handle) >= 0
        assert all(process.pid > 0 for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        assert nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
        values = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.NVML_FI_DEV_POWER_INSTANT])
        assert len(values) == 2
        if not SOFTWARE:
            assert values[0].nvmlReturn == nvml.NVML_SUCCESS
            assert nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) > 0
            assert nvml.nvmlDeviceGetPowerUsage(handle) > 0
            assert len(nvml.nvmlDeviceGetSupportedMemoryClocks(handle)) > 0
        else:
            assert all(value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED for value in values)
            fails(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
            fails(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetPowerUsage, handle)
            fails(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetSupportedMemoryClocks, handle)
    for argument in ("", "GPU-", "GPU-00000000-0000-0000-0000-000000000000"):
        fails(nvml.NVML_ERROR_NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID, argument)
    fails(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetHandleByIndex, 4096)
    fails(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetHandleByPciBusId, "nowhere")
    nvml.nvmlShutdown()
    fails(nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)


def forwarded():
    """What tests/programs/fake_nvml.cpp says, for a server that was told to use it."""
    nvml.nvmlInit()
    assert nvml.nvmlSystemGetDriverVersion() == "1.2.3"
    assert nvml.nvmlDeviceGetCount() == 2
    first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    for handle in (first, second):
        assert nvml.nvmlDeviceGetName(handle) == nvml.nvmlDeviceGetUUID(handle)
        assert nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) == 42
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        assert (memory.total, memory.reserved, memory.free, memory.used) == (1000, 1, 900, 99)
        # Asks for the count first, with no room.
        assert nvml.nvmlDeviceGetSupportedMemoryClocks(handle) == [100, 200, 300]
        values = nvml.nvmlDeviceGetFieldValues(handle, [7, (8, 3)])
        assert [value.value.uiVal for value in values] == [70, 83]
        assert nvml.nvmlDeviceGetFieldValues(handle, []) is not None
        # What nvidia-ml-py does not know.
        rows, broken = (ctypes.c_uint * 6)(), ctypes.c_uint()
        library = ctypes.CDLL("libnvidia-ml.so.1")
        assert library.nvmlDeviceGetRemappedRows_v2(handle, rows) == nvml.NVML_SUCCESS
        assert list(rows) == [10, 11, 12, 13, 14, 15]
        assert library.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle, ctypes.byref(broken)) == nvml.NVML_SUCCESS
        assert broken.value == 1
        # The library does not have it.
        fails(nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.nvmlDeviceGetPowerUsage, handle)
        fails(nvml.NVML_ERROR_NO_PERMISSION, nvml.nvmlDeviceSetPersistenceMode, handle, 1)
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == nvml.NVML_TOPOLOGY_NODE
    near = nvml.nvmlDeviceGetTopologyNearestGpus(first, nvml.NVML_TOPOLOGY_NODE)
    assert [nvml.nvmlDeviceGetIndex(handle) for handle in near] == [1]
    assert nvml.nvmlDeviceGetTopologyNearestGpus(first, nvml.NVML_TOPOLOGY_SINGLE) == []
    within_a_node = 3
    places = (ctypes.c_char_p(b"00000000:01:00.0"), ctypes.c_char_p(b"0000:02:00.0"))
    assert of_the_table(PATH, *places) == (nvml.NVML_SUCCESS, within_a_node)
    assert of_the_table(MARGIN, first) == (nvml.NVML_SUCCESS, -7)


def linked():
    """Each server's NVML says that the first link of its devices leads to the second of them."""
    nvml.nvmlInit()
    for index, wanted in enumerate([1, 1, 3, 3]):
        remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(nvml.nvmlDeviceGetHandleByIndex(index), 0)
        for address in (remote.busId, remote.busIdLegacy, f"{remote.domain:x}:{remote.bus:x}:{remote.device:x}"):
            assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(address)) == wanted, (index, address)


def refusals():
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    denied = nvml.NVML_ERROR_NO_PERMISSION
    fails(denied, nvml.nvmlDeviceSetPowerManagementLimit, handle, 1000)
    fails(denied, nvml.nvmlDeviceSetComputeMode, handle, nvml.NVML_COMPUTEMODE_PROHIBITED)
    fails(denied, nvml.nvmlDeviceSetPersistenceMode, handle, nvml.NVML_FEATURE_DISABLED)
    fails(denied, nvml.nvmlDeviceSetEccMode, handle, nvml.NVML_FEATURE_DISABLED)
    fails(denied, nvml.nvmlDeviceSetGpuLockedClocks, handle, 1, 2)
    fails(denied, nvml.nvmlDeviceResetGpuLockedClocks, handle)
    fails(denied, nvml.nvmlDeviceClearEccErrorCounts, handle, nvml.NVML_VOLATILE_ECC)
    fails(denied, nvml.nvmlDeviceSetMigMode, handle, 1)
    fails(denied, nvml.nvmlDeviceSetFanSpeed_v2, handle, 0, 0)
    # What is refused politely: no device offers an event.
    events = nvml.nvmlEventSetCreate()
    assert nvml.nvmlDeviceGetSupportedEventTypes(handle) == 0
    fails(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, events)
    fails(nvml.NVML_ERROR_TIMEOUT, nvml.nvmlEventSetWait_v2, events, 1)
    nvml.nvmlEventSetFree(events)


def threads():
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    expected, wrong = ask(handle), []

    def many():
        for _ in range(50):
            if ask(handle) != expected:
                wrong.append(True)

    workers = [threading.Thread(target=many) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def fork():
    """A forked child may go on, as it may natively; its parent's answers stay its parent's."""
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    expected = ask(handle)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(ask(handle) == expected for _ in range(20)) else 1)
    assert all(ask(handle) == expected for _ in range(20))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ask(handle) == expected


def affinity():
    """All processors and nodes of this machine are equally near: no device is at one of them."""
    nvml.nvmlInit()
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        ranges = [part.split("-") for part in file.read().strip().split(",")]
    online = {number for part in ranges for number in range(int(part[0]), int(part[-1]) + 1)}
    words = max(online) // 64 + 1

    def listed(bits):
        return {64 * word + bit for word, value in enumerate(bits) for bit in range(64) if value >> bit & 1}

    count = nvml.nvmlDeviceGetCount()
    for index in range(count):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        assert listed(nvml.nvmlDeviceGetCpuAffinity(handle, words)) == online
        for scope in (nvml.NVML_AFFINITY_SCOPE_NODE, nvml.NVML_AFFINITY_SCOPE_SOCKET):
            assert listed(nvml.nvmlDeviceGetCpuAffinityWithinScope(handle, words + 1, scope)) == online
            assert 0 in listed(nvml.nvmlDeviceGetMemoryAffinity(handle, 1, scope))
        fails(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetCpuAffinity, handle, 0)
        fails(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetMemoryAffinity, handle, 1, 7)
    allowed = os.sched_getaffinity(0)
    for widen in (nvml.nvmlDeviceSetCpuAffinity, nvml.nvmlDeviceClearCpuAffinity):
        os.sched_setaffinity(0, {min(allowed)})
        widen(nvml.nvmlDeviceGetHandleByIndex(0))
        assert os.sched_getaffinity(0) >= allowed
    near = nvml.nvmlSystemGetTopologyGpuSet(min(online))
    assert [nvml.nvmlDeviceGetIndex(handle) for handle in near] == list(range(count))
    fails(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlSystemGetTopologyGpuSet, 1 << 20)


# Where functions stand that are in no header.
PATH, IS_WATCHED, MARGIN, ADDRESSING = 0xB8, 0x240, 0x780, 0x790


def of_the_table(place, *arguments):
    """Calls a function of nvidia-smi's table with addresses: its status, and the number that it gives."""
    functions = ctypes.POINTER(ctypes.c_size_t)()
    name = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
    assert nvml.nvmlLib.nvmlInternalGetExportTable(ctypes.byref(functions), name) == 0
    value = ctypes.c_int(77)
    addresses = [ctypes.cast(argument, ctypes.c_void_p) for argument in (*arguments, ctypes.byref(value))]
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(addresses))(functions[place // 8])
    return function(*addresses), value.value


def table():
    """What nvidia-smi asks of functions that are in no header: for dmon and pmon, for topo, for -q."""
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    for handle in handles:
        assert of_the_table(IS_WATCHED, handle) == (nvml.NVML_SUCCESS, 1)
        assert of_the_table(ADDRESSING, handle) == (nvml.NVML_SUCCESS, 0)
        assert nvml.nvmlDeviceGetAddressingMode(handle) == 0
        assert of_the_table(MARGIN, handle)[0] == nvml.NVML_ERROR_NOT_SUPPORTED
    assert of_the_table(IS_WATCHED, None)[0] == nvml.NVML_ERROR_INVALID_ARGUMENT
    first, second = (ctypes.c_char_p(nvml.nvmlDeviceGetPciInfo(handle).busId.encode()) for handle in handles)
    one_bridge, system = 0, 4
    assert of_the_table(PATH, first, first) == (nvml.NVML_SUCCESS, one_bridge)
    for other in (second, ctypes.c_char_p(b"0000:77:00.0"), ctypes.c_char_p(b"nowhere")):
        assert of_the_table(PATH, first, other) == (nvml.NVML_SUCCESS, system)
        assert of_the_table(PATH, other, first) == (nvml.NVML_SUCCESS, system)
    assert of_the_table(PATH, first, None)[0] == nvml.NVML_ERROR_INVALID_ARGUMENT


def quiet():
    """A program may fork once it has asked NVML, as monitors do: no thread has been started."""
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        ask(handle)
        assert nvml.nvmlDeviceGetMemoryInfo(handle).used == 0
        assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
        nvml.nvmlDeviceGetUtilizationRates(handle)
    assert len(os.listdir("/proc/self/task")) == 1


def fork_beside_cuda():
    """The parent uses CUDA; its child, which cannot, sees the devices and that it has nothing of them."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory, other = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 1) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(other), device) == 0

    def held():
        nvml.nvmlInit()
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            assert memory.total == total.value == other.value == 1 << 30
            processes = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            found.append((memory.used, processes))
        return found

    # NVML begins in the child, and only then in the parent.
    child = os.fork()
    if child == 0:
        os._exit(0 if held() == [(0, []), (0, [])] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    used = total.value - free.value
    assert used >= 64 << 20 and held() == [(0, []), (used, [os.getpid()])]


def process():
    """The process whose number is given keeps the first device busy and holds 64 MiB of it."""
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    listed = {process.pid: process.usedGpuMemory for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    number = int(sys.argv[3])
    assert number in listed, listed
    # A container's NVML may not know how much.
    assert listed[number] is None or listed[number] >= 64 << 20, listed
    assert os.getpid() not in listed
    assert "endless" in nvml.nvmlSystemGetProcessName(number)
    assert nvml.nvmlDeviceGetMemoryInfo(handle).used >= 64 << 20
    # On a machine that is busy otherwise it may get nothing done for a while.
    until = time.monotonic() + 60
    while nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0:
        assert time.monotonic() < until
        time.sleep(0.05)


def nobody():
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index)) == []


def lost():
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    print("ready", flush=True)
    sys.stdin.readline()
    fails(nvml.NVML_ERROR_GPU_IS_LOST, nvml.nvmlDeviceGetName, handle)


def unreachable():
    fails(nvml.NVML_ERROR_UNKNOWN, nvml.nvmlInit)


SOFTWARE = sys.argv[2] == "cpu"
globals()[sys.argv[1]]()
