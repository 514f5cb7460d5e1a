#: title = "streams, events, host callbacks, captured graphs"
#: wants = ["cupy"]
import cupy as cp
from compat import check, exact, show

streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
x = cp.zeros(100_000, dtype=cp.float32)
cp.cuda.Device().synchronize()
event = None
for round in range(100):
    with streams[round % 4] as stream:
        if event is not None:
            stream.wait_event(event)
        x += round
        event = stream.record()
event.synchronize()
exact("chain", x[:4])
start, end = cp.cuda.Event(), cp.cuda.Event()
start.record()
cp.dot(cp.ones((500, 500)), cp.ones((500, 500)))
end.record()
end.synchronize()
check("time passes", 0 < cp.cuda.get_elapsed_time(start, end) < 10_000)
said = []
with streams[0] as stream:
    x *= 2
    stream.launch_host_func(said.append, "first")
    x *= 2
    stream.launch_host_func(said.append, "second")
stream.synchronize()
show("host functions", *said)
y = cp.zeros(1000)
cp.cuda.Device().synchronize()
with streams[1] as stream:
    z = y * 1
    stream.synchronize()
    stream.begin_capture()
    y += 1
    y *= 2
    graph = stream.end_capture()
    for _ in range(5):
        graph.launch(stream)
    stream.synchronize()
exact("graph", y)
