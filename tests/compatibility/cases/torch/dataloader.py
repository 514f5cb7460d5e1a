#: title = "DataLoader with worker processes and pinned memory, copies that overlap with training"
#: wants = ["torch"]
#: timeout = 120
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, show
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 64, 64, generator=generator), index % 10


def main():
    torch.manual_seed(10)
    torch.use_deterministic_algorithms(True)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(32 * 15 * 15, 10),
    ).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for workers, method in ((0, None), (4, "fork"), (2, "spawn")):
        loader = DataLoader(Numbers(), batch_size=64, num_workers=workers, pin_memory=True, multiprocessing_context=method)
        for images, labels in loader:
            if not images.is_pinned():
                check("batches are pinned", False)
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        show(f"loss with {workers} workers", loss.item())


if __name__ == "__main__":
    main()
