"""Training with DistributedDataParallel, a process for each rank: time of a step, and the losses.

Started by run.sh as all_reduce.py is. MODEL is `resnet` (ResNet-50, batches of 64) or `gpt` (eight
layers of 768, batches of 8 times 512 tokens). The losses of rank 0 are printed as a digest: equal
digests are equal losses, bit by bit. Algorithms are chosen that give the same in each run.
"""

import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WARM = 10
STEPS = int(os.environ.get("STEPS", "40"))


class Gpt(nn.Module):
    def __init__(self, width=768, layers=8, heads=12, words=32000, length=512):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.out = nn.Linear(width, words)

    def forward(self, tokens):
        length = tokens.shape[1]
        state = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for layer in self.layers:
            state = layer(state, src_mask=mask, is_causal=True)
        return self.out(state)


def task(rank):
    """A model, and what computes its loss."""
    seeded = torch.Generator().manual_seed(rank)
    if os.environ.get("MODEL", "resnet") == "resnet":
        import torchvision

        images = torch.randn(64, 3, 224, 224, generator=seeded).cuda()
        labels = torch.randint(0, 1000, (64,), generator=seeded).cuda()
        return torchvision.models.resnet50(), lambda model: cross_entropy(model(images), labels)
    tokens = torch.randint(0, 32000, (8, 513), generator=seeded).cuda()
    given, next_ones = tokens[:, :-1], tokens[:, 1:].flatten()
    return Gpt(), lambda model: cross_entropy(model(given).flatten(0, 1), next_ones)


def main():
    rank, device = int(os.environ["RANK"]), int(os.environ["DEVICE"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # The gradients of the other ways to compute attention differ from run to run.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_flash_sdp(False)
    model, loss_of = task(rank)
    model = DistributedDataParallel(model.cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    losses = []
    for step in range(STEPS):
        if step == WARM:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    taken = (time.perf_counter() - begun) / (STEPS - WARM)
    values = [loss.item() for loss in losses]
    if rank == 0:
        digest = hashlib.sha256(repr(values).encode()).hexdigest()[:12]
        print(f"{taken * 1e3:.2f} ms a step, losses {digest}, last {values[-1]:.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
