#: title = "a Llama of a billion random parameters in bf16: greedy and sampled text, with and without a static cache"
#: wants = ["torch", "transformers"]
#: timeout = 240
#: memory = 10
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8", HF_HUB_OFFLINE = "1", TOKENIZERS_PARALLELISM = "false" }
import time

import torch
from compat import exact, info, show
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(21)
torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(
    vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=20, num_attention_heads=16,
    num_key_value_heads=8, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)
with torch.device("cuda"):
    net = LlamaForCausalLM(config).eval()
show("parameters", sum(p.numel() for p in net.parameters()))
words = torch.randint(2, 32000, (2, 17), generator=torch.Generator().manual_seed(3)).cuda()
with torch.no_grad():
    exact("scores", net(words).logits)
    started = time.monotonic()
    greedy = net.generate(words, max_new_tokens=48, do_sample=False)
    show("greedy", greedy[:, 17:].tolist())
    info(f"{48 / (time.monotonic() - started):.1f} tokens a second")
    torch.cuda.manual_seed(4)
    sampled = net.generate(words, max_new_tokens=32, do_sample=True, temperature=0.9, top_k=50, top_p=0.95)
    show("sampled", sampled[:, 17:].tolist())
    beams = net.generate(words[:1], max_new_tokens=12, num_beams=4, do_sample=False)
    show("beams", beams[:, 17:].tolist())
