#: title = "a spin in a field, damped: the exact solution of the Landau-Lifshitz-Gilbert equation"
#: software = true
"""All spins of a small magnet point the same way, and turn about a field while damping aligns them with it. There is an
exact solution of that, and no Fourier transform in it."""

import math
from pathlib import Path

import program

GAMMA = 1.7595e11  # rad/(T s), mumax3's own
FIELD, DAMPING, SECONDS = 0.5, 0.1, 100e-12

Path("spin.mx3").write_text(
    f"""
SetGridSize(4, 4, 1)
SetCellSize(4e-9, 4e-9, 4e-9)
EnableDemag = false
Msat = 800e3
Aex = 13e-12
alpha = {DAMPING}
m = Uniform(1, 0, 0)
B_ext = Vector(0, 0, {FIELD})
TableAutoSave(10e-12)
Run({SECONDS})
"""
)
program.run("usr/bin/mumax3", "-http", "", "-cache", "cache", "-f", "spin.mx3")
program.content("table", "spin.out/table.txt")
last = [float(word) for word in Path("spin.out/table.txt").read_text().splitlines()[-1].split()]

turned = GAMMA * FIELD * SECONDS / (1 + DAMPING**2)
along = math.tanh(DAMPING * turned)
across = math.sqrt(1 - along**2)
for name, value, right in zip("xyz", last[1:4], (across * math.cos(turned), across * math.sin(turned), along)):
    program.close(f"m{name}", value, right, 1e-4)
