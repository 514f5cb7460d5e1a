"""Loads a file into device memory and says how fast: FILE gds|mmap TIMES.

`gds` uses `torch.cuda.gds`, `mmap` a mapping of the file. Natively, and through a server:

    python3 benches/files/load.py /data/big mmap 3
    outboard run --server gpu1 --stats -- python3 benches/files/load.py /data/big gds 3
"""

import os
import sys
import time

import torch

path, way, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = os.path.getsize(path)
memory = torch.empty(size, dtype=torch.uint8, device="cuda")
if way == "gds":
    file = torch.cuda.gds.GdsFile(path, os.O_RDONLY)
    # The first transfer opens the file at the server.
    file.load_storage(torch.empty(1 << 20, dtype=torch.uint8, device="cuda").untyped_storage(), 0)
rates = []
for _ in range(times):
    mapping = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    if way == "gds":
        file.load_storage(memory.untyped_storage(), 0)
    else:
        memory.copy_(mapping)
    torch.cuda.synchronize()
    rates.append(size / (time.perf_counter() - begun) / 1e9)
whole = memory[: size // 8 * 8].view(torch.int64)
print(f"{way}: {' '.join(f'{rate:.2f}' for rate in rates)} GB/s, sum {int(whole.sum())}")
