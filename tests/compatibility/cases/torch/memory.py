#: title = "memory statistics, limits, running out of memory and going on"
#: wants = ["torch"]
#: memory = 12
import torch
from compat import check, show

MIB = 1 << 20
base = torch.cuda.memory_allocated()
x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
show("allocated", torch.cuda.memory_allocated() - base, torch.cuda.max_memory_allocated() - base)
show("reserved", torch.cuda.memory_reserved())
del x
show("after freeing", torch.cuda.memory_allocated() - base, torch.cuda.memory_reserved())
torch.cuda.empty_cache()
show("after emptying the cache", torch.cuda.memory_reserved())
torch.cuda.reset_peak_memory_stats()
stats = torch.cuda.memory_stats()
show("statistics", stats["num_alloc_retries"], stats["num_ooms"], stats["active.all.peak"])
free, total = torch.cuda.mem_get_info()
check("free is not more than there is", 0 < free <= total)
show("total", total, torch.cuda.get_device_properties(0).total_memory)
before = torch.cuda.mem_get_info()[0]
held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
check("memory in use is not free", torch.cuda.mem_get_info()[0] <= total - (8 << 30))
del held
try:
    torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    check("too much is refused", False)
except torch.cuda.OutOfMemoryError:
    check("too much is refused", True)
show("times out of memory", torch.cuda.memory_stats()["num_ooms"])
check("then work goes on", torch.ones(1000, device="cuda").sum().item() == 1000)
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    check("the fraction is kept", False)
except torch.cuda.OutOfMemoryError:
    check("the fraction is kept", True)
torch.cuda.set_per_process_memory_fraction(1.0)
check("a summary", "Allocated memory" in torch.cuda.memory_summary())
check("a snapshot", isinstance(torch.cuda.memory_snapshot(), list))
properties = torch.cuda.get_device_properties(0)
show(
    "properties", properties.name, properties.major, properties.minor, properties.multi_processor_count,
    properties.L2_cache_size, properties.warp_size, properties.max_threads_per_multi_processor, str(properties.uuid),
)
