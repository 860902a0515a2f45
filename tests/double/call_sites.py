#!/usr/bin/env python3
"""Names the call sites in reports of the double: the innermost frames in the product's libraries.

usage: call_sites.py REPORT... [--frames N] [--minus REPORT --divide STEPS]

Host waits are summed by call site, most frequent first; findings are printed with their call sites. --minus subtracts a
shorter run's waits from a longer run's and divides by the difference in steps: the waits of one step.
"""
import argparse
import collections
import re
import subprocess

KINDS = re.compile(r"(FINDING|WAIT|OPERATION|REPORT) (.*)")
FRAME = re.compile(r"    (\S+) \+0x([0-9a-f]+)")


def parse(path):
    """[(kind, text, [(library, offset)])]"""
    items = []
    for line in open(path, errors="replace"):
        if kind := KINDS.match(line):
            items.append((kind[1], kind[2], []))
        elif (frame := FRAME.match(line)) and items:
            items[-1][2].append((frame[1], int(frame[2], 16)))
    return items


def is_product(library):
    return "cuda" not in library and ("libtessera" in library or library.endswith("/tessera"))


def resolve(frames):
    """(library, offset) -> ["file:line function"], inlined functions first."""
    by_library = collections.defaultdict(set)
    for library, offset in frames:
        by_library[library].add(offset)
    names = {}
    for library, offsets in by_library.items():
        offsets = sorted(offsets)
        lines = subprocess.run(["addr2line", "-Cfipe", library] + [hex(o - 1) for o in offsets],  # the call itself
                               capture_output=True, text=True, check=True).stdout.splitlines()
        groups = []
        for line in lines:
            if line.startswith(" (inlined by) "):
                groups[-1].append(line[len(" (inlined by) "):])
            else:
                groups.append([line])
        names.update({(library, o): [place(text) for text in group] for o, group in zip(offsets, groups)})
    return names


def place(text):
    function, _, where = text.rpartition(" at ")
    function = re.sub(r"\(.*", "", function.replace("(anonymous namespace)::", ""))
    where = re.sub(r" \(discriminator \d+\)", "", re.sub(r"^.*/(?=tessera/)", "", where))
    return f"{where} {function.split('::')[-1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--minus")
    parser.add_argument("--divide", type=float, default=1)
    options = parser.parse_args()

    former = collections.Counter()
    for path in ([options.minus] if options.minus else []) + options.reports:
        items = parse(path)
        names = resolve({f for _, _, frames in items for f in frames if is_product(f[0])})

        def site(frames):
            found = [text for f in frames if is_product(f[0]) for text in names[f] if text.startswith("tessera/")]
            return " < ".join(found[:options.frames]) or "(no frame of the product: a thread of autograd)"

        waits = collections.Counter()
        for kind, text, frames in items:
            if kind == "FINDING":
                print(f"FINDING {text}\n        {site(frames)}")
            elif kind == "WAIT":
                count, what = re.match(r"x(\d+) (.*)", text).groups()
                waits[what, site(frames)] += int(count)
        if path == options.minus:
            former = waits
            continue
        print(path)
        rows = [((n - former[key]) / options.divide, *key) for key, n in waits.items() if n != former[key]]
        for n, what, where in sorted(rows, reverse=True):
            print(f"{n:8.1f}  {what:32s} {where}")
        print(f"{sum(row[0] for row in rows):8.1f}  waits of the host")


main()
