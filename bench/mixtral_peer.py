"""The peer of bench/mixtral_bench.cpp: transformers' MixtralForCausalLM in eager PyTorch (sdpa attention, fused AdamW)
on the same rows. Prints one JSON line.

    mixtral_peer.py [--experts_implementation eager|grouped_mm] [--layers 4 --d 256 ... as the bench]
"""
import json

import torch
from transformers import MixtralConfig, MixtralForCausalLM

import small_llama

p = small_llama.parser(d=256, kv=4, intermediate=512, steps=8, threads=2, experts=8, top_k=2)
p.add_argument("--experts_implementation", default="eager")
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(0)
config = MixtralConfig(num_hidden_layers=a.layers, hidden_size=a.d, num_attention_heads=a.heads,
                       num_key_value_heads=a.kv, intermediate_size=a.intermediate, vocab_size=a.vocab,
                       max_position_embeddings=a.T, num_local_experts=a.experts, num_experts_per_tok=a.top_k,
                       use_cache=False, dtype="float32", tie_word_embeddings=False)
config._attn_implementation = "sdpa"
config._experts_implementation = a.experts_implementation
model = MixtralForCausalLM(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0, fused=True)
result = small_llama.train_alone(a, model, optimizer)
print(json.dumps({"tok_s": result["tok_s"], "cpu_s": result["cpu_s"], "loss": result["losses"][-1]}))
