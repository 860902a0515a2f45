"""The planner's predictions for published runs, compared with the authors' measurements.

    bench/plan_published.py build TABLE.csv [--json FILE] [--worst N]

The table has one run per row (columns: tests/plan/published.csv). build/tests/plan_published reads it and predicts
every row for the engine that ran it; this program prints errors by device, size, axes, source and engine, the
planner's error on an unseen source (each device's rate fitted to the other sources only), the value of each
trait of engines, the worst rows by the parts of their time, and the sweeps: runs of one model on one
cluster, the planner's choice among them, and the number of pairs that it orders as measured. A pair counts
if its measured times differ by more than 3 %.

No row is omitted silently: mixtures of experts, fp8 and fp4, rows without a batch, second prints of the same run, and
rows whose settings contradict their figure (products, attention and the bubble of the schedule alone take a tenth
longer than the published time) are listed with the reason; for the last kind the summary is printed with and without
them."""
import argparse, collections, json, math, statistics, subprocess, sys

FAMILIES = {"BLOOM": "BigScience", "NVIDIA": "NVIDIA", "Megatron-LM": "Megatron-LM", "SC21": "Megatron-LM"}


TRAITS = ("attention", "passes", "loss", "host", "slow_nodes", "messages", "sequence_parallel", "tensor_hidden",
          "data_hidden", "numerics")


def read(build, table, *without):
    done = subprocess.run([f"{build}/tests/plan_published", table, *without], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    seen = {}
    for row in rows:
        if row["left_out"]:
            continue
        row["family"] = FAMILIES.get(row["family"], row["family"])
        row["error"] = row["predicted"] / row["published"] - 1
        row["log"] = math.log(row["predicted"] / row["published"])
        same = tuple(row[k] for k in ("model", "heads", "sequence", "gpus", "device", "tp", "pp", "v", "cp", "zero",
                                      "rows", "batch", "recompute", "precision", "published"))
        if same in seen:
            row["left_out"] = f"the run of row {seen[same]} again"
        seen.setdefault(same, row["line"])
        time = row["time"]
        row["contradicts"] = time["products"] + time["attention"] + time["bubble"] > 1.1 * row["published"]
    return rows


def share(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def line(name, rows):
    errors = [abs(row["error"]) for row in rows]
    bias = math.expm1(statistics.mean(row["log"] for row in rows))
    print(f"  {name:36} {len(rows):4}  median {100 * statistics.median(errors):5.1f} %  "
          f"p90 {100 * share(errors, 0.9):5.1f} %  worst {100 * max(errors):5.1f} %  bias {100 * bias:+5.1f} %")


def by(title, rows, key):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    print(f"\nBy {title}")
    for name in sorted(groups):
        line(str(name), groups[name])


def axis(row):
    axes = [a for a in ("tp", "pp", "cp") if row[a] > 1]
    return " ".join(axes) or "data parallel alone"


def size(row):
    return next(f"up to {n:5} devices" for n in (8, 64, 512, 4096, 99999) if row["gpus"] <= n)


def unseen(rows):
    """Each source predicted with the rate of its device fitted (one factor) to the other sources of that device."""
    out = []
    for row in rows:
        others = [r["log"] for r in rows if r["device"] == row["device"] and r["family"] != row["family"]]
        if not others:
            continue
        log = row["log"] - statistics.median(others)
        out.append(dict(row, error=math.expm1(log), log=log))
    return out


def model_class(row):
    """Groups shapes of about the same size from one comparison into a sweep."""
    return row["model"] if row["family"] != "BigScience" else "GPT of 180 G"


def taken(runs):
    """Chooses like the search: among runs within its error of the fastest, the one with the fewest messages."""
    fastest = min(r["predicted"] for r in runs)
    return min((r for r in runs if r["predicted"] <= fastest * (1 + r["equal_within"])),
               key=lambda r: (r["messages"], r["predicted"]))


def sweeps(rows):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[(row["family"], row["device"], row["gpus"], model_class(row), row["sequence"], row["batch"])].append(row)
    behind, right, pairs, apart = [], 0, 0, []
    print("\nSweeps: what the planner would take against the best, and pairs in the right order")
    for key in sorted(groups, key=str):
        runs = groups[key]
        if len({r["published"] for r in runs}) < 2:
            continue
        best, chosen = min(runs, key=lambda r: r["published"]), taken(runs)
        loss = chosen["published"] / best["published"] - 1
        good = count = 0
        for i, a in enumerate(runs):
            for b in runs[i + 1:]:
                apart.append(abs(a["log"] - b["log"]))
                if abs(math.log(a["published"] / b["published"])) <= math.log(1.03):
                    continue
                count += 1
                good += (a["published"] < b["published"]) == (a["predicted"] < b["predicted"])
        behind.append(loss)
        right, pairs = right + good, pairs + count
        print(f"  {key[3]:24} {key[2]:5}x{key[1]:8} batch {key[5]:5}: {len(runs):2} runs, chosen row {chosen['line']} "
              f"{100 * loss:4.1f} % behind row {best['line']}; {good} of {count} pairs")
    if behind:
        print(f"  {len(behind)} sweeps: chosen {100 * statistics.median(behind):.1f} % behind in the median, "
              f"{100 * max(behind):.1f} % at worst; {right} of {pairs} pairs in order"
              + (f" ({100 * right / pairs:.0f} %)" if pairs else ""))
        print(f"  the ratio of two times of a sweep is wrong by {100 * statistics.median(apart):.1f} % in the median")


def settings(row):
    return (f"{row['model']}, {row['gpus']} x {row['device']}, tp {row['tp']} pp {row['pp']} v {row['v']} "
            f"cp {row['cp']} dp {row['dp']} zero {row['zero']}, {row['rows']} rows, batch {row['batch']}, "
            f"{row['sequence']} tokens"
            + (f", recompute {row['recompute']}" if row["recompute"] not in ("", "none") else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("table")
    parser.add_argument("--json")
    parser.add_argument("--worst", type=int, default=10)
    options = parser.parse_args()
    all_rows = read(options.build, options.table)
    rows = [row for row in all_rows if not row["left_out"]]
    if options.json:
        with open(options.json, "w") as file:
            json.dump(all_rows, file, indent=1)
    print(f"{len(all_rows)} rows; left out: ", end="")
    reasons = collections.Counter(r["left_out"].split(" of row")[0] for r in all_rows if r["left_out"])
    print(", ".join(f"{count} {reason}" for reason, count in reasons.most_common()))
    for row in rows:
        if row["other_figure"] and abs(row["other_figure"] / row["published"] - 1) > 0.03:
            print(f"  row {row['line']}: its two figures differ: {row['published']:.4g} s and "
                  f"{row['other_figure']:.4g} s")
    sound = [row for row in rows if not row["contradicts"]]
    for row in rows:
        if row["contradicts"]:
            alone = sum(row["time"][k] for k in ("products", "attention", "bubble"))
            print(f"  row {row['line']} contradicts itself: {row['published']:.4g} s published, products, attention "
                  f"and bubble alone {alone:.4g} s: {settings(row)}")
    dense = [row for row in sound if not row["mixture"]]
    print("\nAll")
    line("dense", dense)
    line("those that contradict themselves, too", [row for row in rows if not row["mixture"]])
    if any(row["mixture"] for row in rows):
        line("mixtures of experts", [row for row in rows if row["mixture"]])
    far = unseen(dense)
    if far:
        line("dense, of a source not seen", far)
    by("device", dense, lambda r: r["device"])
    by("devices", dense, size)
    by("axes", dense, axis)
    by("source", dense, lambda r: f"{r['family']} on {r['device']}")
    by("engine", dense, lambda r: r["engine"])
    if far:
        by("source, as if it had not been seen", far, lambda r: f"{r['family']} on {r['device']}")
    print("\nWhat each trait of engines is worth: the same rows with that trait as our own engine has it")
    kept = {row["line"] for row in dense}
    for trait in TRAITS:
        line(f"without {trait}", [r for r in read(options.build, options.table, trait) if r["line"] in kept])
    print(f"\nThe worst {options.worst}: share of the predicted step")
    for row in sorted(dense, key=lambda r: -abs(r["error"]))[:options.worst]:
        parts = sorted(row["time"].items(), key=lambda kv: -kv[1])
        print(f"  row {row['line']}: {100 * row['error']:+.1f} % ({row['published']:.4g} s, {row['predicted']:.4g} s "
              f"predicted) {settings(row)}\n      "
              + "  ".join(f"{k} {100 * v / row['predicted']:.0f} %" for k, v in parts if v > 0.005 * row["predicted"]))
    sweeps(dense)


main()
