#: title = "a process for each device: collectives, DistributedDataParallel and FSDP"
#: wants = ["torch"]
#: devices = 2
#: timeout = 180
#: memory = 8
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8", NCCL_NVLS_ENABLE = "0", TORCH_SYMM_MEM_DISABLE_MULTICAST = "1" }
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from compat import exact, show
from torch import nn


def train(rank, wrap):
    """Losses of a few steps, each rank with a batch of its own."""
    torch.manual_seed(5)
    net = wrap(nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)).cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(8):
        loss = net(torch.randn(64, 256, generator=batches).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    return losses.tolist()


def work(rank, ranks, port):
    torch.cuda.set_device(rank)
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=ranks)
    x = torch.arange(1000.0, device="cuda") + rank
    total = x.clone()
    dist.all_reduce(total)
    gathered = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(gathered, x)
    scattered = torch.empty(1000 // ranks, device="cuda")
    dist.reduce_scatter_tensor(scattered, x[: 1000 // ranks * ranks].clone())
    exchanged = torch.empty_like(x[: 1000 // ranks * ranks])
    dist.all_to_all_single(exchanged, x[: 1000 // ranks * ranks].clone())
    passed = torch.empty_like(x)
    transfers = [
        dist.P2POp(dist.isend, x, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, passed, (rank - 1) % ranks),
    ]
    for request in dist.batch_isend_irecv(transfers):
        request.wait()
    alone = dist.new_group([0])
    kept = x.clone()
    if rank == 0:
        dist.all_reduce(kept, group=alone)
    torch.cuda.synchronize()
    averaged = train(rank, lambda net: nn.parallel.DistributedDataParallel(net, device_ids=[rank]))

    def sharded(net):
        from torch.distributed.fsdp import fully_shard

        fully_shard(net[2])
        return fully_shard(net) or net

    shards = train(rank, sharded)
    if rank == 0:
        exact("collectives", total, *gathered, scattered, exchanged, passed, kept)
        show("DistributedDataParallel", *averaged)
        show("FSDP", *shards)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(work, (ranks, port), ranks)
    print("all ranks ended")
