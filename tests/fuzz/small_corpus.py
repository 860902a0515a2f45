"""Selects the few inputs of a campaign that go to tests/fuzz/corpus, where fuzz_tests replays them and the next
campaign starts.

    python3 tests/fuzz/small_corpus.py BUILD --corpora DIR [--only NAME,NAME]

For each reader it takes the inputs of DIR/NAME and of tests/fuzz/corpus/NAME that together reach the most edges, by
greedy set cover (the next input adds the most edges; ties: the shorter one), at most INPUTS inputs and BYTES in total.
Files named "kept-*" (inputs that once crashed) always stay. BUILD is a build of the preset fuzz-fast.
"""
import argparse, glob, hashlib, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
INPUTS, BYTES, LONGEST = 60, 100_000, 4096


def edges_of(program, folders, scratch):
    """[(path, edges)] of the inputs in `folders`, from libFuzzer's merge log."""
    control, merged = os.path.join(scratch, "control"), os.path.join(scratch, "merged")
    os.makedirs(merged)
    done = subprocess.run([program, "-set_cover_merge=1", "-use_counters=0", f"-max_len={LONGEST}",
                           f"-merge_control_file={control}", merged, *folders], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    lines = open(control).read().splitlines()
    paths = lines[2:2 + int(lines[0])]
    return [(paths[int(words[1])], set(map(int, words[2:]))) for words in map(str.split, lines) if words
            and words[0] == "FT"]


def cover(candidates):
    """(selected paths, edges that they reach, edges that all inputs reach)."""
    size = {path: os.path.getsize(path) for path, _ in candidates}
    chosen = [path for path, _ in candidates if os.path.basename(path).startswith("kept-")]
    reached = set().union(*(edges for path, edges in candidates if path in chosen))
    every = set().union(*(edges for _, edges in candidates))
    left = [(path, edges) for path, edges in candidates if size[path] <= LONGEST and path not in chosen]
    while left and len(chosen) < INPUTS:
        room = BYTES - sum(size[path] for path in chosen)
        left = [(path, edges - reached) for path, edges in left if size[path] <= room]
        left = [(path, edges) for path, edges in left if edges]
        if not left:
            break
        path, edges = max(left, key=lambda pair: (len(pair[1]), -size[pair[0]], pair[0]))
        chosen.append(path)
        reached |= edges
    return chosen, reached, every


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--corpora", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    readers = sorted(os.path.basename(path)[:-len("_fuzz.cpp")] for path in glob.glob(os.path.join(HERE, "*_fuzz.cpp")))
    only = set(filter(None, args.only.split(",")))
    for name in readers:
        target, found = os.path.join(HERE, "corpus", name), os.path.join(args.corpora, name)
        folders = [folder for folder in (target, found) if os.path.isdir(folder) and os.listdir(folder)]
        if (only and name not in only) or not folders:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            candidates = edges_of(os.path.join(args.build, "tests", "fuzz", f"{name}_fuzz"), folders, scratch)
        chosen, reached, every = cover(candidates)
        inputs = {}
        for path in chosen:
            data, old = open(path, "rb").read(), os.path.basename(path)
            inputs[old if old.startswith("kept-") else hashlib.sha256(data).hexdigest()[:12]] = data
        os.makedirs(target, exist_ok=True)
        for old in os.listdir(target):
            os.remove(os.path.join(target, old))
        for new, data in inputs.items():
            with open(os.path.join(target, new), "wb") as out:
                out.write(data)
        print(f"{name}: {len(inputs)} of {len(candidates)} inputs, {sum(map(len, inputs.values()))} bytes, reach "
              f"{len(reached)} of "
              f"{len(every)} edges", flush=True)


if __name__ == "__main__":
    sys.exit(main())
