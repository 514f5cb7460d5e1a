#: title = "LSTM and GRU (cuDNN), transformer encoder, embedding, layer and group norm, losses"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact, show
from torch import nn

torch.manual_seed(4)
torch.use_deterministic_algorithms(True)
for kind in (nn.LSTM, nn.GRU):
    for options in ({}, {"bidirectional": True, "num_layers": 2}):
        net = kind(48, 96, batch_first=True, **options).cuda()
        x = torch.randn(7, 30, 48, device="cuda", requires_grad=True)
        out, _ = net(x)
        out.square().mean().backward()
        exact(f"{kind.__name__} {len(options)}", out, x.grad, *(p.grad for p in net.parameters()))
encoder = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True).cuda()
x = torch.randn(5, 20, 64, device="cuda", requires_grad=True)
encoder(x).sum().backward()
exact("transformer layer", x.grad)
table = nn.Embedding(1000, 64).cuda()
words = torch.randint(0, 1000, (16, 32), device="cuda")
nn.GroupNorm(4, 64).cuda()(table(words).transpose(1, 2)).square().sum().backward()
exact("embedding", table.weight.grad)
scores = torch.randn(64, 100, device="cuda", requires_grad=True)
target = torch.randint(0, 100, (64,), device="cuda")
losses = [
    nn.functional.cross_entropy(scores, target, label_smoothing=0.1),
    nn.functional.mse_loss(scores, scores.roll(1)),
    nn.functional.huber_loss(scores, scores.flip(0)),
]
sum(losses).backward()
show("losses", *(loss.item() for loss in losses))
exact("gradient", scores.grad)
