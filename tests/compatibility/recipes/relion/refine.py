#: title = "refinement of a map from 120 noisy projections of six blobs, three iterations"
#: software = true
#: cuda = ["libcufft.so.10"]
#: timeout = 900
#: slow = true
"""The projections are of a map that is known, from directions that RELION has to find. It does so on the device and on the
processor: both must come to the same resolution, and to the map. RELION resets the device after each iteration."""

import math
import random
import re
import struct
from pathlib import Path

import compat
import program

BOX, ANGSTROMS, IMAGES = 32, 4.0, 120
RANDOM = random.Random(7)
# Position, width (both in pixels), weight.
BLOBS = [
    ((-6, 2, 1), 1.8, 1.0),
    ((5, 5, -3), 1.5, 1.2),
    ((2, -7, 4), 1.6, 0.9),
    ((0, 1, 8), 1.4, 0.8),
    ((-3, -4, -7), 1.7, 1.1),
    ((7, -2, 2), 1.3, 0.7),
]
STAR = f"""
# version 30001

data_optics

loop_
_rlnOpticsGroup #1
_rlnOpticsGroupName #2
_rlnVoltage #3
_rlnSphericalAberration #4
_rlnAmplitudeContrast #5
_rlnImagePixelSize #6
_rlnImageSize #7
_rlnImageDimensionality #8
1 opticsGroup1 300 2.7 0.1 {ANGSTROMS} {BOX} 2


# version 30001

data_particles

loop_
_rlnImageName #1
_rlnOpticsGroup #2
_rlnMicrographName #3
"""


def bell(centre: float, width: float) -> list[float]:
    return [math.exp(-((at - BOX // 2 - centre) ** 2) / (2 * width**2)) for at in range(BOX)]


def volume() -> list[float]:
    out = [0.0] * BOX**3
    for centre, width, weight in BLOBS:
        x, y, z = (bell(at, width) for at in centre)
        for layer in range(BOX):
            for row in range(BOX):
                factor, start = weight * z[layer] * y[row], (layer * BOX + row) * BOX
                for column in range(BOX):
                    out[start + column] += factor * x[column]
    return out


def directions() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The axes of an image, turned at random."""
    w, x, y, z = (RANDOM.gauss(0, 1) for _ in range(4))
    size = math.hypot(w, x, y, z)
    w, x, y, z = w / size, x / size, y / size, z / size
    return (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)), (
        2 * (x * y + z * w),
        1 - 2 * (x * x + z * z),
        2 * (y * z - x * w),
    )


def image() -> list[float]:
    """A projection with noise; outside of the particle its mean is 0 and its deviation 1, as RELION expects."""
    out = [0.0] * BOX**2
    axes = directions()
    for centre, width, weight in BLOBS:
        x, y = (bell(sum(a * b for a, b in zip(axis, centre)), width) for axis in axes)
        scale = weight * width * math.sqrt(2 * math.pi)
        for row in range(BOX):
            for column in range(BOX):
                out[row * BOX + column] += scale * y[row] * x[column]
    out = [value + RANDOM.gauss(0, 1) for value in out]
    half = BOX / 2
    outside = [
        out[row * BOX + column]
        for row in range(BOX)
        for column in range(BOX)
        if math.hypot(row - half, column - half) > half - 1
    ]
    mean = sum(outside) / len(outside)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in outside) / len(outside))
    return [(value - mean) / deviation for value in out]


def write(path: str, layers: int, values: list[float]) -> None:
    """An MRC file."""
    head = struct.pack("<10i", BOX, BOX, layers, 2, 0, 0, 0, BOX, BOX, layers)
    head += struct.pack("<6f", BOX * ANGSTROMS, BOX * ANGSTROMS, layers * ANGSTROMS, 90, 90, 90) + struct.pack("<3i", 1, 2, 3)
    head = head.ljust(208, b"\0") + b"MAP \x44\x44\0\0"
    Path(path).write_bytes(head.ljust(1024, b"\0") + struct.pack(f"<{len(values)}f", *values))


def read(path: str) -> tuple[float, ...]:
    return struct.unpack(f"<{BOX**3}f", Path(path).read_bytes()[-4 * BOX**3 :])


def correlation(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    means = [sum(values) / len(values) for values in (one, other)]
    products = [(a - means[0], b - means[1]) for a, b in zip(one, other)]
    squares = sum(a * a for a, _ in products) * sum(b * b for _, b in products)
    return sum(a * b for a, b in products) / math.sqrt(squares)


def refine(name: str, flags: list[str]) -> tuple[float, float, tuple[float, ...]]:
    """(resolution, logarithm of the likelihood, map) after the last iteration."""
    Path(name).mkdir()
    program.run(
        *("usr/bin/relion_refine", "--i", "particles.star", "--o", f"{name}/run", "--ref", "truth.mrc", "--firstiter_cc"),
        *("--ini_high", 40, "--iter", 3, "--K", 1, "--tau2_fudge", 2, "--particle_diameter", 110, "--flatten_solvent"),
        *("--zero_mask", "--oversampling", 1, "--healpix_order", 1, "--offset_range", 2, "--offset_step", 2, "--sym", "C1"),
        *("--norm", "--scale", "--random_seed", 1, "--pad", 1, "--dont_check_norm", "--verb", 0, *flags),
    )
    model = Path(f"{name}/run_it003_model.star").read_text()
    value = lambda key: float(re.search(rf"^_rln{key}\s+(\S+)", model, re.MULTILINE)[1])  # noqa: E731
    return value("CurrentResolution"), value("LogLikelihood"), read(f"{name}/run_it003_class001.mrc")


write("truth.mrc", BOX, volume())
write("particles.mrcs", IMAGES, [value for _ in range(IMAGES) for value in image()])
Path("particles.star").write_text(
    STAR + "".join(f"{number:06d}@particles.mrcs 1 micrograph\n" for number in range(1, IMAGES + 1))
)
truth = read("truth.mrc")
resolution, likelihood, found = refine("device", ["--gpu", "0"])
resolution_there, likelihood_there, found_there = refine("processor", [])

compat.near("likelihood", likelihood, 1e-2)
compat.near("map", [correlation(found, truth)], 1e-2)
program.close("the resolution in Å", resolution, resolution_there, 0.01)
program.close("the likelihood, of the processor's", likelihood / likelihood_there, 1, 0.02)
program.close("the correlation with the processor's map", correlation(found, found_there), 1, 0.02)
program.close("the correlation with the true map", correlation(found, truth), 1, 0.15)
