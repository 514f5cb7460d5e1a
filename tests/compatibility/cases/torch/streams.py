#: title = "streams and events: order, priorities, timing, queries, waiting across threads"
#: wants = ["torch"]
import threading

import torch
from compat import check, exact, show

streams = [torch.cuda.Stream(priority=-(number % 2)) for number in range(8)]
data = torch.zeros(1 << 20, device="cuda")
torch.cuda.synchronize()
previous = None
for round in range(200):
    stream = streams[round % 8]
    with torch.cuda.stream(stream):
        if previous is not None:
            stream.wait_event(previous)
        data.mul_(1.01).add_(round)
        previous = torch.cuda.Event()
        previous.record(stream)
previous.synchronize()
exact("a chain over eight streams", data[:10])

start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(10):
    torch.randn(2048, 2048, device="cuda") @ torch.randn(2048, 2048, device="cuda")
end.record()
check("an event is not over at once, or is", end.query() in (True, False))
end.synchronize()
check("time has passed", 0 < start.elapsed_time(end) < 10000)
check("it is over now", end.query() and torch.cuda.current_stream().query())
show("priorities", *torch.cuda.Stream.priority_range() if hasattr(torch.cuda.Stream, "priority_range") else ())

ready = threading.Event()
shared = {}


def produce():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        shared["data"] = torch.arange(1_000_000, device="cuda", dtype=torch.float32).sqrt()
        shared["event"] = stream.record_event()
    ready.set()


thread = threading.Thread(target=produce)
thread.start()
ready.wait()
torch.cuda.current_stream().wait_event(shared["event"])
exact("made by another thread", shared["data"] * 2)
thread.join()

# Memory used by another stream is not given away too early.
side = torch.cuda.Stream()
for round in range(20):
    block = torch.full((1 << 20,), float(round), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = block.sum()
    block.record_stream(side)
    del block
    torch.full((1 << 20,), -1.0, device="cuda")
    side.synchronize()
    if total.item() != round * (1 << 20):
        check("recorded streams keep memory", False)
show("sum on the side", total.item())

# A copy in one thread must not overtake launches that have returned in another.
box = torch.zeros(1 << 16, device="cuda")
late = 0
for round in range(300):
    worker = threading.Thread(target=lambda: box.fill_(float(round)))
    worker.start()
    worker.join()
    late += int(box.cpu()[-1].item() != round)
show("overtaken", late)
