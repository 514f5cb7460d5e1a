"""From `import torch` to the first tensor, and to the first work of cuBLAS and cuDNN. Once in a process."""

from __future__ import annotations

import time

import torch


def start():
    def take():
        started = time.perf_counter()
        torch.ones(1, device="cuda")
        torch.cuda.synchronize()
        first = time.perf_counter()
        with torch.no_grad():
            x = torch.ones(256, 256, device="cuda")
            (x @ x).sum().item()
            images = torch.ones(1, 3, 64, 64, device="cuda")
            torch.nn.functional.conv2d(images, torch.ones(8, 3, 3, 3, device="cuda")).sum().item()
        return {"first_tensor": first - started, "first_layers": time.perf_counter() - first}, 1

    return take


APPS = {"first_tensor": start}
