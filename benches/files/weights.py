"""Loads a file of weights into device memory and says how fast: FILE safetensors|fast|read TIMES.

`safetensors` uses `safetensors.torch.load_file`, `fast` fastsafetensors, `read` the same without
cuFile; `make` writes a file of TIMES tensors of 256 MiB. Natively, and through a server:

    python3 benches/files/weights.py /data/w.safetensors safetensors 4
    outboard run --server gpu1 --files --stats -- python3 benches/files/weights.py /data/w.safetensors fast 4
"""

import os
import sys
import time

import torch
from safetensors.torch import load_file, save_file

path, way, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
if way == "make":
    tensor = lambda: torch.randint(-(2**31), 2**31 - 1, (64 << 20,), dtype=torch.int32)
    save_file({f"layer.{number}": tensor() for number in range(times)}, path)
    sys.exit()
size = os.path.getsize(path)
torch.empty(1, device="cuda")
rates = []
for _ in range(times):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    if way == "safetensors":
        tensors = load_file(path, device="cuda:0")
    else:
        from fastsafetensors import SafeTensorsFileLoader

        loader = SafeTensorsFileLoader(None, "cuda:0", nogds=way == "read")
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        tensors = {name: buffers.get_tensor(name) for name in loader.get_keys()}
    torch.cuda.synchronize()
    rates.append(size / (time.perf_counter() - begun) / 1e9)
    whole = sum(int(tensor.sum()) for tensor in tensors.values())
    if way != "safetensors":
        buffers.close()
        loader.close()
    del tensors
    torch.cuda.empty_cache()
print(f"{way}: {' '.join(f'{rate:.2f}' for rate in rates)} GB/s, sum {whole}")
