"""ResNet-50: forward, backward and SGD on 64 images in bf16 autocast. A turn is five steps and one wait."""

from __future__ import annotations

import time

import torch
from models import resnet50

STEPS = 5


def training():
    torch.manual_seed(2)
    net = resnet50().cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")

    def take():
        started = time.perf_counter()
        for _ in range(STEPS):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        return {"resnet_training": (time.perf_counter() - started) / STEPS}, STEPS

    for _ in range(2):
        take()
    return take


APPS = {"resnet_training": training}
