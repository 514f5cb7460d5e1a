#: title = "pics: parallel imaging by conjugate gradients, wavelets and total variation"
#: software = true
#: cuda = ["libcufft.so.10", "libcublas.so.11"]
#: env = { OMP_NUM_THREADS = "1" }
#: variants.gradients = { OPTIONS = "-l2 -r 0.01" }
#: variants.wavelets = { OPTIONS = "-e -R W:3:0:0.01" }
#: variants.variation = { OPTIONS = "-m -C 4 -R T:3:0:0.01" }
#: slow = true
"""As nufft.py, with the sensitivities of four coils and other regularisations. After more steps, what rounding does to
conjugate gradients would be seen: at the tenth, 1 % of the image."""

import os

import program

OPTIONS = os.environ["OPTIONS"].split()


def bart(*words: object) -> str:
    return program.run("usr/bin/bart", *words)


bart("traj", "-r", "-x", 64, "-y", 48, "spokes")
bart("phantom", "-k", "-s", 4, "-t", "spokes", "measured")
bart("phantom", "-S", 4, "-x", 64, "coils")
for where, flags in ("processor", []), ("device", ["-g"]):
    bart("pics", *flags, "-i", 6, *OPTIONS, "-t", "spokes", "measured", "coils", where)
program.content("image", "device.cfl")
program.close("its relative distance from the processor's", float(bart("nrmse", "processor", "device")), 0, 1e-3)
