#: title = "a Llama that device_map cuts in two: scores and greedy text as on one device"
#: wants = ["torch", "transformers", "accelerate"]
#: devices = 2
#: timeout = 240
#: memory = 8
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8", HF_HUB_OFFLINE = "1", TOKENIZERS_PARALLELISM = "false" }
import tempfile
import time

import torch
from compat import check, exact, info, show
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(21)
LAYERS = 12
config = LlamaConfig(
    vocab_size=8000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=LAYERS, num_attention_heads=16,
    num_key_value_heads=8, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)
device_map = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 1, "lm_head": 1}
device_map |= {f"model.layers.{i}": int(i >= LAYERS // 2) for i in range(LAYERS)}
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    net, whole = (
        LlamaForCausalLM.from_pretrained(folder, device_map=chosen, dtype=torch.bfloat16).eval()
        for chosen in (device_map, {"": 0})
    )
show("devices", sorted({p.device.index for p in net.parameters()}))
words = torch.randint(2, 8000, (2, 17), generator=torch.Generator().manual_seed(3)).cuda()
with torch.no_grad():
    exact("scores", net(words).logits)
    check("as on one device", torch.equal(net(words).logits.cpu(), whole(words).logits.cpu()))
    started = time.monotonic()
    greedy = net.generate(words, max_new_tokens=40, do_sample=False)
    show("greedy", greedy[:, 17:].tolist())
    info(f"{40 / (time.monotonic() - started):.1f} tokens a second")
