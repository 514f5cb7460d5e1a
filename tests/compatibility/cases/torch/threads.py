#: title = "eight threads at once, each with a stream and a model of its own"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import threading

import torch
from compat import exact, show

torch.use_deterministic_algorithms(True)
results, errors = {}, []


def work(number):
    try:
        generator = torch.Generator().manual_seed(number)
        weight = torch.randn(128, 128, generator=generator)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            w = (weight / 12).cuda().requires_grad_()
            x = torch.randn(64, 128, generator=generator).cuda()
            for step in range(50):
                loss = (x @ w).tanh().square().mean()
                loss.backward()
                with torch.no_grad():
                    w -= 0.1 * w.grad
                    w.grad = None
                if step % 10 == 0:
                    loss.item()
                torch.empty(1 << (10 + step % 8), device="cuda").fill_(step)
        stream.synchronize()
        results[number] = w.detach()
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if errors:
    raise RuntimeError(errors[0])
exact("weights", *(results[number] for number in range(8)))
show("threads", len(results))
