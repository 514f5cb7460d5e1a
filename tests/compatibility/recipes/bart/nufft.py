#: title = "nufft: the image of spokes through the frequencies"
#: software = true
#: cuda = ["libcufft.so.10", "libcublas.so.11"]
#: env = { OMP_NUM_THREADS = "1" }
#: variants = { plain = { OPTIONS = "" }, regular = { OPTIONS = "-l 0.01" } }
#: slow = true
"""BART makes its own phantom, and its own image on the processor, with which that of the device is compared. It runs on one
thread, since several add in another order each time."""

import os

import program

OPTIONS = os.environ["OPTIONS"].split()


def bart(*words: object) -> str:
    return program.run("usr/bin/bart", *words)


bart("traj", "-r", "-x", 64, "-y", 48, "spokes")
bart("phantom", "-k", "-t", "spokes", "measured")
bart("nufft", "-i", "-m", 10, *OPTIONS, "spokes", "measured", "processor")
bart("nufft", "-g", "-i", "-m", 10, *OPTIONS, "spokes", "measured", "device")
program.content("image", "device.cfl")
program.close("its relative distance from the processor's", float(bart("nrmse", "processor", "device")), 0, 1e-3)
