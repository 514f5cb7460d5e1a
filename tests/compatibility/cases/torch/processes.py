#: title = "torch.multiprocessing: spawned processes share CUDA tensors and events (IPC)"
#: wants = ["torch"]
#: timeout = 150
#: memory = 4
import torch
import torch.multiprocessing as mp
from compat import check, exact, show


def child(number, inbox, outbox, event):
    shared = inbox.get()
    event.wait()
    shared[number] += 10 * (number + 1)
    torch.cuda.synchronize()
    outbox.put((number, shared[number].sum().item()))
    mine = torch.full((1000,), float(number), device="cuda")
    outbox.put(mine)
    inbox.get()  # keeps `mine` alive until the parent has read it
    del shared


def main():
    context = mp.get_context("spawn")
    tensor = torch.arange(4096.0, device="cuda").view(2, 2048)
    event = torch.cuda.Event(interprocess=True)
    event.record()
    boxes = [(context.Queue(), context.Queue()) for _ in range(2)]
    children = [context.Process(target=child, args=(number, *boxes[number], event)) for number in range(2)]
    for process, (inbox, _) in zip(children, boxes):
        process.start()
        inbox.put(tensor)
    for _, outbox in boxes:
        show("child", *outbox.get(timeout=100))
    exact("written by the children", tensor)
    for number, (inbox, outbox) in enumerate(boxes):
        theirs = outbox.get(timeout=100)
        check(f"a tensor of child {number}", torch.equal(theirs.cpu(), torch.full((1000,), float(number))))
        del theirs
        inbox.put(None)
    for process in children:
        process.join()
        show("exit code", process.exitcode)


if __name__ == "__main__":
    main()
