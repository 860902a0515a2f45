"""The experts of a small Mixtral (8 experts, 2 per token) on two ranks of one thread each (`tessera train --ep_size 2`)
against one process of two threads: same weights, same rows, rounds interleaved; prints tokens/s, CPU seconds per step,
the medians of the ratios, and the share of the rows' transfer time that was hidden. (Against
transformers: mixtral_bench and mixtral_peer.py.)

    python3 bench/experts.py --build BUILD [--rounds 3] [--steps 6]

4 layers x 512, 8 heads, 4 key heads, experts of 896, vocabulary 8192, 8 x 256 tokens a step, fp32.
"""
import argparse, json, os, statistics, tempfile

from runs import lcg_rows, program, run_tessera, write_rows

BATCH, LENGTH, VOCABULARY = 8, 256, 8192
CONFIG = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 4,
          "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 896,
          "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": VOCABULARY,
          "max_position_embeddings": LENGTH, "tie_word_embeddings": False}

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--warmup", type=int, default=2)
args = parser.parse_args()


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/config.json", "w") as file:
        json.dump(CONFIG, file)
    write_rows(f"{folder}/rows",
               [row for step in range(args.steps) for row in lcg_rows(step, BATCH, LENGTH, VOCABULARY)])
    program([os.path.join(args.build, "tessera"), "train", "--config_name", f"{folder}/config.json", "--train_file",
             f"{folder}/rows.bin", "--block_size", str(LENGTH), "--max_steps", "1", "--learning_rate", "0",
             "--validation_split_percentage", "0", "--per_device_train_batch_size", "1", "--output_dir",
             f"{folder}/model"])
    results = {"one process, 2 threads": [], "ep 2": []}
    for number in range(args.rounds):
        for name, ranks, flags in (("one process, 2 threads", 1, ()), ("ep 2", 2, ("--ep_size", "2"))):
            line = run_tessera(args.build, folder, LENGTH, BATCH, args.steps, args.warmup, ranks, 2 // ranks, flags)
            results[name].append(line)
            print(f"round {number + 1}: {name:22s} {line['tok_s']:8.0f} tok/s, {line['cpu_s']:.3f} CPU-s a step, "
                  f"losses {line['losses'][0]:.6f} ... {line['losses'][-1]:.6f}", flush=True)

pairs = list(zip(results["ep 2"], results["one process, 2 threads"]))
print(f"ep 2 against one process: {statistics.median(a['tok_s'] / b['tok_s'] for a, b in pairs):.2f}x tokens/s, "
      f"{statistics.median(b['cpu_s'] / a['cpu_s'] for a, b in pairs):.2f}x by CPU seconds")
journeys = [row for line in results["ep 2"] for row in line["communication"]
            if row["axis"] == "ep" and row["operation"] == "all_to_all"]
waited, under_way = (sum(row[name] for row in journeys) for name in ("seconds_waited", "seconds_in_flight"))
print(f"rows between ranks: {under_way / args.rounds:.2f} s under way in a run, {waited / args.rounds:.2f} s of them "
      f"waited for ({1 - waited / under_way:.0%} hidden)")
