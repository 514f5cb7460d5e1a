"""All-reduces of two or more ranks, a process each: bandwidth, latency, and one in a CUDA graph.

Started by run.sh, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and DEVICE. Rank 0 prints bus
bandwidth as nccl-tests define it, and microseconds of 8 bytes: one after the other without a wait,
and each waited for.
"""

import os
import statistics
import time

import torch
import torch.distributed as dist


def timed(work, times):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / times


def best(work, times):
    def run():
        dist.barrier()
        return timed(work, times)

    return min(run() for _ in range(3))


def in_a_graph(ranks):
    """Sums and halves ten times by replays; with two ranks, the values stay as they were."""
    values = torch.ones(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            dist.all_reduce(values)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(values)
        values.div_(ranks)
    values.fill_(1)
    for _ in range(10):
        graph.replay()
    return bool((values == 1).all())


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["DEVICE"]))
    dist.init_process_group("nccl")
    told = []
    small = torch.ones(2, device="cuda")
    for _ in range(5):
        dist.all_reduce(small)
    told.append(f"8 B {best(lambda: dist.all_reduce(small), 200) * 1e6:.1f} us")
    waited = [timed(lambda: dist.all_reduce(small), 1) for _ in range(200)]
    told.append(f"waited for {statistics.median(waited) * 1e6:.1f} us")
    for mib in (64, 1024):
        values = torch.ones(mib << 18, device="cuda")
        for _ in range(5):
            dist.all_reduce(values)
        taken = best(lambda values=values: dist.all_reduce(values), 20)
        bus = values.nbytes / taken * 2 * (ranks - 1) / ranks
        told.append(f"{mib} MiB {bus / 1e9:.1f} GB/s")
    sums = torch.full((1000,), rank + 1.0, device="cuda")
    dist.all_reduce(sums)
    right = bool((sums == ranks * (ranks + 1) / 2).all()) and in_a_graph(ranks)
    if rank == 0:
        print("; ".join(told), "; right" if right else "; WRONG", sep="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
