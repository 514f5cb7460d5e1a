#: title = "what would change the server's GPU is refused with NVML_ERROR_NO_PERMISSION"
#: wants = ["pynvml"]
#: remote_only = true
import glob

import pynvml as nv
from compat import check, foreign_drivers

# Each call sets what is set already, and none is made where a GPU of this machine could be reached.
check("no GPU can be reached here", not glob.glob("/dev/nvidia*"))
nv.nvmlInit()
check("the library is Outboard's", not foreign_drivers())
device = nv.nvmlDeviceGetHandleByIndex(0)
CHANGES = {
    "persistence mode": lambda: nv.nvmlDeviceSetPersistenceMode(device, nv.nvmlDeviceGetPersistenceMode(device)),
    "compute mode": lambda: nv.nvmlDeviceSetComputeMode(device, nv.nvmlDeviceGetComputeMode(device)),
    "power limit": lambda: nv.nvmlDeviceSetPowerManagementLimit(device, nv.nvmlDeviceGetEnforcedPowerLimit(device)),
}
for name, change in CHANGES.items():
    try:
        change()
        check(f"{name} is refused", False)
    except nv.NVMLError as error:
        check(f"{name} is refused", error.value == nv.NVML_ERROR_NO_PERMISSION)
