#: title = "nvidia-ml-py: what does not change is equal, what does is plausible"
#: wants = ["pynvml"]
import pynvml as nv
from compat import check, show


def text(value):
    return value.decode() if isinstance(value, bytes) else value


nv.nvmlInit()
show("driver", text(nv.nvmlSystemGetDriverVersion()), nv.nvmlSystemGetCudaDriverVersion(), text(nv.nvmlSystemGetNVMLVersion()))
show("devices", nv.nvmlDeviceGetCount())
device = nv.nvmlDeviceGetHandleByIndex(0)
FIXED = {
    "name": nv.nvmlDeviceGetName, "uuid": nv.nvmlDeviceGetUUID, "brand": nv.nvmlDeviceGetBrand, "architecture": nv.nvmlDeviceGetArchitecture,
    "capability": nv.nvmlDeviceGetCudaComputeCapability, "cores": nv.nvmlDeviceGetNumGpuCores, "bus width": nv.nvmlDeviceGetMemoryBusWidth,
    "minor": nv.nvmlDeviceGetMinorNumber, "power limit": nv.nvmlDeviceGetEnforcedPowerLimit,
    "power limits": nv.nvmlDeviceGetPowerManagementLimitConstraints, "compute mode": nv.nvmlDeviceGetComputeMode,
    "persistence": nv.nvmlDeviceGetPersistenceMode, "vbios": nv.nvmlDeviceGetVbiosVersion, "board part": nv.nvmlDeviceGetBoardPartNumber,
    "multi-GPU board": nv.nvmlDeviceGetMultiGpuBoard, "PCIe generation": nv.nvmlDeviceGetMaxPcieLinkGeneration,
    "PCIe width": nv.nvmlDeviceGetMaxPcieLinkWidth, "MIG": nv.nvmlDeviceGetMigMode, "ECC": nv.nvmlDeviceGetEccMode,
    "display": nv.nvmlDeviceGetDisplayMode, "index": nv.nvmlDeviceGetIndex, "encoders": lambda d: nv.nvmlDeviceGetEncoderCapacity(d, 0),
    "highest clock": lambda d: nv.nvmlDeviceGetMaxClockInfo(d, nv.NVML_CLOCK_SM),
    "shutdown temperature": lambda d: nv.nvmlDeviceGetTemperatureThreshold(d, 0),
    "bus": lambda d: text(nv.nvmlDeviceGetPciInfo(d).busId), "total": lambda d: nv.nvmlDeviceGetMemoryInfo(d).total,
    "fans": nv.nvmlDeviceGetNumFans,
}
for name, query in FIXED.items():
    try:
        value = query(device)
    except nv.NVMLError as error:
        value = type(error).__name__
    show(name, text(value))
memory = nv.nvmlDeviceGetMemoryInfo(device)
check("memory", memory.used + memory.free <= memory.total * 1.01 and memory.used >= 0)
rates = nv.nvmlDeviceGetUtilizationRates(device)
check("utilisation", 0 <= rates.gpu <= 100 and 0 <= rates.memory <= 100)
check("temperature", 10 < nv.nvmlDeviceGetTemperature(device, nv.NVML_TEMPERATURE_GPU) < 110)
check("power", 10_000 < nv.nvmlDeviceGetPowerUsage(device) < 1_500_000)
check("clock", 0 < nv.nvmlDeviceGetClockInfo(device, nv.NVML_CLOCK_SM) < 5000)
check("processes", isinstance(nv.nvmlDeviceGetComputeRunningProcesses(device), list))
same = nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(device))
check("found by its UUID", nv.nvmlDeviceGetIndex(same) == 0)
try:
    nv.nvmlDeviceGetHandleByIndex(99)
    check("no device 99", False)
except nv.NVMLError as error:
    show("device 99", str(error))
nv.nvmlShutdown()
