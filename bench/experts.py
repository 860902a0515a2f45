"""A small Mixtral (8 experts, 2 per token) on this machine: `tessera train` in one process of two threads, its experts on
two ranks of one thread each (--ep_size 2), and transformers' MixtralForCausalLM in eager PyTorch, one process of two
threads. Same weights, same rows, rounds interleaved; prints tokens/s, CPU seconds a step, and the ratios' medians.

    python3 bench/experts.py --build BUILD --venv VENV [--rounds 3] [--steps 6]

4 layers x 512, 8 heads, 4 key heads, experts of 896, vocabulary 8192, 8 x 256 tokens a step, fp32. VENV has PyTorch and
transformers (bench/compare.sh makes .deps/peers).
"""
import argparse, json, os, statistics, sys, tempfile, time

BATCH, LENGTH, VOCABULARY = 8, 256, 8192

parser = argparse.ArgumentParser()
parser.add_argument("--build")
parser.add_argument("--venv")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--peer", choices=["save", "train"], help=argparse.SUPPRESS)
parser.add_argument("--folder", help=argparse.SUPPRESS)
args = parser.parse_args()


def rows(step):
    x, result = step + 1, []
    for _ in range(BATCH):
        row = []
        for _ in range(LENGTH):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            row.append((x >> 8) % VOCABULARY)
        result.append(row)
    return result


def peer():
    """What runs under VENV's Python."""
    import torch
    from transformers import AutoModelForCausalLM, MixtralConfig
    torch.set_num_threads(2)
    torch.manual_seed(0)
    if args.peer == "save":
        config = MixtralConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, num_key_value_heads=4,
                               intermediate_size=896, num_local_experts=8, num_experts_per_tok=2,
                               vocab_size=VOCABULARY, max_position_embeddings=LENGTH, bos_token_id=1, eos_token_id=2)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(args.folder)
        return
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, experts_implementation="eager")
    model.train()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    times, losses, cpu = [], [], 0.0
    for step in range(args.steps):
        ids = torch.tensor(rows(step))
        if step == args.warmup:
            cpu = time.process_time()
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        times.append(time.perf_counter() - begin)
    print(json.dumps({"tok_s": BATCH * LENGTH / statistics.median(times[args.warmup:]),
                      "cpu_s": (time.process_time() - cpu) / (args.steps - args.warmup), "losses": losses}))


if args.peer:
    peer()
    sys.exit()

from runs import program, run_tessera, write_rows


def theirs(what, folder):
    return program([os.path.join(args.venv, "bin", "python"), os.path.abspath(__file__), "--peer", what, "--folder",
                    folder, "--steps", str(args.steps), "--warmup", str(args.warmup)], OMP_NUM_THREADS="2",
                   HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore").stdout


with tempfile.TemporaryDirectory() as folder:
    theirs("save", f"{folder}/model")
    write_rows(f"{folder}/rows", [row for step in range(args.steps) for row in rows(step)])

    def ours(ranks, *flags):
        return run_tessera(args.build, folder, LENGTH, BATCH, args.steps, args.warmup, ranks, 2 // ranks, flags)

    runs = {"one process, 2 threads": lambda: ours(1), "ep 2": lambda: ours(2, "--ep_size", "2"),
            "transformers, eager": lambda: json.loads(theirs("train", f"{folder}/model"))}
    results = {name: [] for name in runs}
    for number in range(args.rounds):
        for name, run in runs.items():
            results[name].append(run())
            line = results[name][-1]
            print(f"round {number + 1}: {name:22s} {line['tok_s']:8.0f} tok/s, {line['cpu_s']:.3f} CPU-s a step, "
                  f"losses {line['losses'][0]:.6f} ... {line['losses'][-1]:.6f}", flush=True)

for name, other in (("one process, 2 threads", "transformers, eager"), ("ep 2", "one process, 2 threads")):
    pairs = list(zip(results[name], results[other]))
    print(f"{name} against {other}: {statistics.median(a['tok_s'] / b['tok_s'] for a, b in pairs):.2f}x tokens/s, "
          f"{statistics.median(b['cpu_s'] / a['cpu_s'] for a, b in pairs):.2f}x by CPU seconds")
