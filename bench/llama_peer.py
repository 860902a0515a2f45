"""The peer of bench/llama.py: transformers' LlamaForCausalLM in eager PyTorch (sdpa attention, fused AdamW). Prints one
JSON line.

    llama_peer.py save FOLDER            the initial weights as a Hugging Face folder (--shard SIZE: in shards)
    llama_peer.py train                  steps on the token generator's rows: tok_s, cpu_s, losses, idle and peak MB
    llama_peer.py generate FOLDER        greedy tokens with the KV cache: tok_s, cpu_s per token

The shape is given by --layers --d --heads --kv --intermediate --vocab --T --tied.
"""
import json, resource, time

import torch
from transformers import AutoModelForCausalLM

import small_llama


def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20


IDLE_MB = resident_mb()  # with only the libraries loaded


def parse():
    p = small_llama.parser(layers=6, kv=4, intermediate=1376, vocab=32000, tied=0, threads=2, tokens=64)
    p.add_argument("what", choices=["save", "train", "generate"])
    p.add_argument("folder", nargs="?")
    p.add_argument("--shard", default="100GB")
    return p.parse_args()


def build(a):
    return small_llama.model(a, tie_word_embeddings=bool(a.tied), eos_token_id=a.vocab - 1)


def train(a):
    model = build(a).train()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    return {**small_llama.train_alone(a, model, optimizer), "idle": IDLE_MB,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "parameters": sum(p.numel() for p in model.parameters())}


def generate(a):
    model = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.float32).eval()
    prompt = torch.tensor([list(b"It was a bright cold day in April")])
    cpu, begin = time.process_time(), time.perf_counter()
    with torch.inference_mode():
        out = model.generate(prompt, max_new_tokens=a.tokens, min_new_tokens=a.tokens, do_sample=False, use_cache=True,
                             pad_token_id=0)
    made = out.shape[1] - prompt.shape[1]
    return {"tok_s": made / (time.perf_counter() - begin), "cpu_s": (time.process_time() - cpu) / made}


def main():
    a = parse()
    torch.set_num_threads(a.threads)
    if a.what == "save":
        build(a).save_pretrained(a.folder, max_shard_size=a.shard)
        return
    print(json.dumps(train(a) if a.what == "train" else generate(a)))


main()
