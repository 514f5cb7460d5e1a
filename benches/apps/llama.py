"""Greedy text of a Llama with a billion random parameters in bf16."""

from __future__ import annotations

import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 24


def generation():
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=20, num_attention_heads=16,
        num_key_value_heads=8, max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            net = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(usual)
    words = torch.randint(2, 32000, (1, 17), generator=torch.Generator().manual_seed(5)).cuda()
    mask = torch.ones_like(words)

    @torch.no_grad()
    def take():
        started = time.perf_counter()
        net.generate(words, attention_mask=mask, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
        torch.cuda.synchronize()
        return {"llama": (time.perf_counter() - started) / TOKENS}, TOKENS

    take()
    return take


APPS = {"llama": generation}
