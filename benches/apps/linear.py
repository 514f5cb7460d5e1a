"""20 linear layers of 256 on 32 rows: eager, bound by launches, and replayed as a CUDA graph. A turn is 20 runs and one wait."""

from __future__ import annotations

import time

import torch
from torch import nn

RUNS = 20


def layers() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(20))).cuda().eval()
    return net, torch.randn(32, 256, device="cuda")


def timed(name: str, run):
    @torch.no_grad()
    def take():
        started = time.perf_counter()
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
        return {name: (time.perf_counter() - started) / RUNS}, RUNS

    for _ in range(3):
        take()
    return take


def eager():
    net, x = layers()
    return timed("linear_eager", lambda: net(x))


@torch.no_grad()
def graph():
    net, x = layers()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        net(x)
    return timed("linear_graph", captured.replay)


APPS = {"linear_eager": eager, "linear_graph": graph}
