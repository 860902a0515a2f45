"""Step time as predicted by `tessera plan check` from a calibration, and as measured by `tessera train`.

    tessera plan calibrate && bench/plan_time.py build [--only WORD] [--json FILE] [--repeat N] [--threads N]
                                                     [--gpus FILE.json] [--measured FILE] [--paired S]

The predictions do not use these runs: the calibration measures operations of many sizes (docs/planning.md). Every
configuration is trained --repeat times in turns, so that a busy minute does not affect only one of them; measured is
the lower quartile of all its steps after the first two (as in the calibration), load the mean of /proc/loadavg. A sweep
is a family, a sequence and a global batch on the same processes: for each, the plan predicted fastest is compared with
the fastest measured. --threads is that of `plan calibrate --threads`: 1 on a busy machine, since threads that wait for
one another suffer most. --paired S calibrates for S seconds before each configuration, for machines whose load changes
from minute to minute. With --gpus the hardware is another file, with `{0}` for the number of processes
(`{0}xFILE/{0}`: all on one machine, whose cores they share when there are fewer)."""
import argparse, json, os, random, statistics, subprocess, sys, tempfile

LLAMA = {"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 2048}
GPT2 = {"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6, "n_positions": 1024, "vocab_size": 4096,
        "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
WIDE = dict(LLAMA, hidden_size=640, intermediate_size=1728, num_hidden_layers=4, num_attention_heads=10)
QWEN = dict(LLAMA, model_type="qwen3", head_dim=64)
MODELS = {"llama": LLAMA, "gpt2": GPT2, "qwen3": QWEN, "wide": WIDE}


def configurations():
    """(sweep, model, settings)"""
    for model in ("llama", "gpt2", "qwen3", "wide"):
        yield "", model, "--block_size 256 --per_device_train_batch_size 4"
        yield "", model, "--block_size 512 --per_device_train_batch_size 2 --bf16"
    yield "", "llama", "--block_size 1024 --per_device_train_batch_size 2"
    yield "", "gpt2", "--block_size 256 --per_device_train_batch_size 4 --gradient_checkpointing"
    for model, block, rows in (("llama", 256, 8), ("gpt2", 256, 8), ("wide", 512, 4)):
        two = f"--num_processes 2 --block_size {block} --per_device_train_batch_size"
        sweep = f"{model} x2"
        yield sweep, model, f"{two} {rows // 2} --strategy ddp"
        yield sweep, model, f"{two} {rows // 2} --strategy zero1"
        yield sweep, model, f"{two} {rows // 2} --strategy full_shard"
        yield sweep, model, f"{two} {rows} --tp_size 2"
        yield sweep, model, f"{two} {rows} --cp_size 2"
        yield sweep, model, f"{two} {rows // 4} --pp_size 2 --gradient_accumulation_steps 4"
    for model in ("llama", "wide"):
        four = "--num_processes 4 --block_size 256 --per_device_train_batch_size"
        sweep = f"{model} x4"
        yield sweep, model, f"{four} 2 --strategy ddp"
        yield sweep, model, f"{four} 2 --strategy zero2"
        yield sweep, model, f"{four} 2 --strategy full_shard"
        yield sweep, model, f"{four} 4 --tp_size 2 --strategy ddp"
        yield sweep, model, f"{four} 2 --pp_size 2 --gradient_accumulation_steps 2"
        yield sweep, model, f"{four} 4 --cp_size 2"


def measured(build, folder, config, settings, threads):
    out = os.path.join(folder, "out")
    command = [f"{build}/tessera", "train", "--config_name", config, "--train_file", f"{folder}/text.txt",
               "--output_dir", out, "--overwrite_output_dir", "--max_steps", "8", "--logging_steps", "1",
               "--save_strategy", "no", "--report_to", "none", "--disable_tqdm", *settings.split()]
    if threads:
        command += ["--threads_per_process", str(threads)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads)) if threads else None
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return [], done.stderr[-400:]
    lines = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    return [line["step_time_ms"] for line in lines if "event" not in line][2:], ""


def predicted(build, gpus, config, settings):
    command = [f"{build}/tessera", "plan", "check", "--json", "--gpus",
               gpus.format(processes_of(settings)), "--config_name", config, *settings.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return None, done.stderr[-400:]
    plan = json.loads(done.stdout)
    return plan, ""


def processes_of(settings):
    words = settings.split()
    return int(words[words.index("--num_processes") + 1]) if "--num_processes" in words else 1


def calibrated(options, folder, settings):
    """The hardware in its current state, for this number of processes."""
    count = processes_of(settings)
    command = [f"{options.build}/tessera", "plan", "calibrate", "--output", f"{folder}/now.json", "--processes",
               str(count), "--seconds", str(options.paired)]
    if options.threads:
        command += ["--threads", str(options.threads)]
    subprocess.run(command, capture_output=True, check=True)
    return f"{{0}}x{folder}/now.json/{{0}}"


def measure(options, folder, case, times, loads):
    steps, problem = measured(options.build, folder, f"{folder}/{case[1]}.json", case[2], options.threads)
    times[case] += steps
    loads.append(float(open("/proc/loadavg").read().split()[0]))
    if problem:
        print(f"{case[1]} {case[2]}: {problem}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--paired", type=float, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--gpus", default="{0}xthis-machine/{0}")
    parser.add_argument("--measured", help="a file of --json: its measurements instead of new ones")
    options = parser.parse_args()
    wanted = [c for c in configurations() if options.only in f"{c[1]} {c[2]}"]
    times, loads, letters = {c: [] for c in wanted}, [], random.Random(1)
    if options.measured:
        known = {(r["model"], r["settings"]): r["steps_ms"] for r in json.load(open(options.measured))}
        wanted = [c for c in wanted if c[1:] in known]
        times = {c: known[c[1:]] for c in wanted}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w") as text:
            text.write("".join(letters.choice("abcdefgh ijklmnop\n") for _ in range(300000)))
        for name, model in MODELS.items():
            with open(f"{folder}/{name}.json", "w") as file:
                json.dump(model, file)
        rows, turns = [], 0 if options.measured else options.repeat
        for turn in range(turns - 1):
            for case in wanted:
                measure(options, folder, case, times, loads)
        for case in wanted:
            gpus = options.gpus
            if turns:
                if options.paired:
                    gpus = calibrated(options, folder, case[2])
                measure(options, folder, case, times, loads)
            plan, problem = predicted(options.build, gpus, f"{folder}/{case[1]}.json", case[2])
            if plan is None or not times[case]:
                print(f"{case[1]} {case[2]}: {problem or 'not measured'}", file=sys.stderr)
                continue
            real = sorted(times[case])[len(times[case]) // 4]
            guess = plan["step_seconds"] * 1e3
            rows.append({"sweep": case[0], "model": case[1], "settings": case[2], "steps_ms": times[case],
                         "measured_ms": real, "predicted_ms": guess, "error": guess / real - 1, "time": plan["time"]})
            parts = "  ".join(f"{k} {1e3 * v:.0f}" for k, v in plan["time"].items() if v * 1e3 >= 1)
            print(f"{case[1]:6} {case[2][:88]:88} {real:7.1f} {guess:7.1f} ms {100 * (guess / real - 1):+6.1f} %  "
                  f"{parts}", flush=True)
            if options.json:  # written after each run, because this program may be stopped
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)
    errors = [row["error"] for row in rows]
    if errors:
        print(f"{len(errors)} configurations: median error {100 * statistics.median(map(abs, errors)):.1f} %, "
              f"worst {100 * max(map(abs, errors)):.1f} %, bias {100 * statistics.mean(errors):+.1f} %"
              + (f"; load {statistics.mean(loads):.1f}" if loads else ""))
    for sweep in sorted({row["sweep"] for row in rows} - {""}):
        group = [row for row in rows if row["sweep"] == sweep]
        chosen, best = min(group, key=lambda r: r["predicted_ms"]), min(group, key=lambda r: r["measured_ms"])
        print(f"sweep {sweep}: chosen {chosen['settings'].split(' ', 6)[-1]}, "
              f"{100 * (chosen['measured_ms'] / best['measured_ms'] - 1):.1f} % behind the best")


main()
