#: title = "passwords found by their hashes, out of a list or by a mask"
#: software = true
#: cuda = ["libnvrtc.so"]
#: timeout = 180
#: env = { ATTACK = "list" }
#: variants.md5 = { MODE = "0", ALGORITHM = "md5" }
#: variants.md5_mask = { MODE = "0", ALGORITHM = "md5", ATTACK = "mask" }
#: variants.sha1 = { MODE = "100", ALGORITHM = "sha1" }
#: variants.sha256_mask = { MODE = "1400", ALGORITHM = "sha256", ATTACK = "mask" }
#: variants.sha512 = { MODE = "1700", ALGORITHM = "sha512" }
#: variants.sha3_mask = { MODE = "17400", ALGORITHM = "sha3_256", ATTACK = "mask" }
#: slow = ["md5_mask", "sha1", "sha256_mask", "sha512", "sha3_mask"]
"""Python makes the hashes, so what hashcat must find is known."""

import hashlib
import os
import shutil
from pathlib import Path

import compat
import program

MODE, ALGORITHM, ATTACK = (os.environ[name] for name in ("MODE", "ALGORITHM", "ATTACK"))
if ATTACK == "list":
    passwords = ["word17", "word499"]
    Path("list").write_text("".join(f"word{number}\n" for number in range(500)))
    attack = ["-a", "0", "hashes", "list"]
else:
    passwords = ["x7q", "a0a"]
    attack = ["-a", "3", "hashes", "?l?d?l"]
Path("hashes").write_text("".join(hashlib.new(ALGORITHM, word.encode()).hexdigest() + "\n" for word in passwords))

# hashcat looks for its files beside itself, and writes compiled kernels there: each run has a place of its own.
place = Path("hashcat").absolute()
place.mkdir()
shutil.copy(program.FOLDER / "usr/bin/hashcat", place)
for name in ("share/hashcat/OpenCL", "share/hashcat/hashcat.hcstat2", "lib/hashcat/modules"):
    (place / Path(name).name).symlink_to(program.FOLDER / "usr" / name)

words = ["-m", MODE, "--potfile-disable", "--quiet", "--backend-ignore-opencl"]
words += ["--outfile", "found", "--outfile-format", "2"]
program.run(place / "hashcat", *words, *attack)
found = sorted(Path("found").read_text().split())
compat.check(f"found: {' '.join(found)}, which are all", found == sorted(passwords))
