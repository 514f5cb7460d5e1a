#: title = "a GPT of 30 million parameters: training steps in bf16 autocast with fused AdamW; losses, then sampling"
#: wants = ["torch"]
#: timeout = 120
#: memory = 10
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact, info, show
from torch import nn
from torch.nn import functional as F

torch.manual_seed(18)
torch.use_deterministic_algorithms(True)
WORDS, WIDTH, LAYERS, HEADS, LENGTH = 8192, 512, 8, 8, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.outputs = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.inputs(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        # The plain and the flash kernel have a fixed order of additions in the backward pass.
        with nn.attention.sdpa_kernel([nn.attention.SDPBackend.FLASH_ATTENTION, nn.attention.SDPBackend.MATH]):
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outputs(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.apply(lambda m: nn.init.normal_(m.weight, std=0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


net = Gpt().cuda()
show("parameters", sum(p.numel() for p in net.parameters()))
optimizer = torch.optim.AdamW(net.parameters(), lr=6e-4, fused=True)
text = torch.randint(0, 97, (200_000,)).cumsum(0) % WORDS
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for step in range(30):
    at = torch.randint(0, len(text) - LENGTH - 1, (16,))
    batch = torch.stack([text[i : i + LENGTH + 1] for i in at]).pin_memory().cuda(non_blocking=True)
    if step == 10:
        start.record()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scores = net(batch[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    show(f"step {step}", loss.item(), norm.item())
end.record()
torch.cuda.synchronize()
info(f"{start.elapsed_time(end) / 20:.1f} ms a step")
net.eval()
words = torch.zeros(2, 1, dtype=torch.long, device="cuda")
torch.cuda.manual_seed(2)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    for _ in range(40):
        chances = net(words)[:, -1].float().softmax(-1)
        words = torch.cat([words, torch.multinomial(chances, 1)], 1)
show("sampled", words.flatten().tolist())
exact("embedding", net.words.weight)
