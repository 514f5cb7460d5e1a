#: title = "no device file of NVIDIA's can be opened or made, and only Outboard's libraries are mapped"
#: remote_only = true
#: software = true
import ctypes
import errno
import glob
import os
import stat

from compat import check, drivers_mapped, foreign_drivers, show

NAMES = ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps/nvidia-cap1", "dri/card0"]


def refused(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENXIO)
    return False


for name in NAMES:
    check(f"/dev/{name} cannot be opened", refused(f"/dev/{name}"))
check("nothing in /dev is named after NVIDIA", not glob.glob("/dev/*nvidia*"))

# 195 is the major number of NVIDIA's devices. Whoever may make a device file here gets one that
# does not open.
try:
    os.mknod("/dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    made = not refused("/dev/nvidia0")
    os.unlink("/dev/nvidia0")
except OSError:
    made = False
check("a device file made here does not open", not made)
check("/proc/driver/nvidia is empty", not os.path.isdir("/proc/driver/nvidia") or not os.listdir("/proc/driver/nvidia"))

driver = ctypes.CDLL("libcuda.so.1")
check("cuInit", driver.cuInit(0) == 0)
count = ctypes.c_int()
check("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)) == 0)
show("devices", count.value)
check("a driver library is mapped", drivers_mapped())
check("it is Outboard's", not foreign_drivers())

# Every other driver library that the loader could find, by name or by path, is not one any more.
ours = os.path.realpath(os.environ["COMPAT_REMOTE"])
places = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia", "/usr/local/nvidia/lib64", "/usr/local/lib", "/usr/local/cuda*/compat"]
loaded = []
for path in (path for place in places for path in glob.glob(f"{place}/libcuda.so*") + glob.glob(f"{place}/libnvidia-*.so*")):
    try:
        ctypes.CDLL(path)
        loaded.append(path)
    except OSError:
        pass
check(f"no other driver library loads {loaded or ''}".strip(), not loaded)
