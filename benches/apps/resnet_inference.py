"""ResNet-50 on one image: bound by launches. Each answer is waited for, as a service does."""

from __future__ import annotations

import time

import torch
from models import resnet50


def inference():
    torch.manual_seed(1)
    net = resnet50().cuda().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda")

    @torch.no_grad()
    def take():
        started = time.perf_counter()
        net(image)
        torch.cuda.synchronize()
        return {"resnet_inference": time.perf_counter() - started}, 1

    for _ in range(10):
        take()
    return take


APPS = {"resnet_inference": inference}
