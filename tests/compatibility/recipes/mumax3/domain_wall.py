#: title = "the energy of a domain wall after relaxation: 4·√(A·K) for each area"
#: software = true
"""Exchange and anisotropy alone: a wall between two domains relaxes to an energy that is known exactly."""

import math
import re
from pathlib import Path

import program

EXCHANGE, ANISOTROPY = 13e-12, 0.5e6
CELLS, CELL = 64, 1e-9

Path("wall.mx3").write_text(
    f"""
SetGridSize({CELLS}, 1, 1)
SetCellSize({CELL}, {CELL}, {CELL})
EnableDemag = false
Msat = 800e3
Aex = {EXCHANGE}
Ku1 = {ANISOTROPY}
anisU = Vector(0, 0, 1)
alpha = 0.5
m = TwoDomain(0, 0, 1, 1, 0, 0, 0, 0, -1)
Run(30e-12)
print("exchange", E_exch.Get())
print("anisotropy", E_anis.Get() + {ANISOTROPY} * {CELLS} * {CELL} * {CELL} * {CELL})
save(m)
"""
)
said = program.run("usr/bin/mumax3", "-http", "", "-cache", "cache", "-f", "wall.mx3")
program.content("magnetisation", "wall.out/m000000.ovf")
wall = sum(float(re.search(rf"^//{name} (\S+)", said, re.MULTILINE)[1]) for name in ("exchange", "anisotropy"))
right = 4 * math.sqrt(EXCHANGE * ANISOTROPY) * CELL**2
program.close("its energy, in 4·√(A·K)", wall / right, 1, 0.01)
