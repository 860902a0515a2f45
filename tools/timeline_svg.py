#!/usr/bin/env python3
"""Draws one step of a timeline (OUT/trace.json of `tessera train --profile`) as SVG: for each rank its phases, the
collectives of each axis of the mesh, and where it waited.

  tools/timeline_svg.py OUT/trace.json --title "tp_size 2" > step.svg

Draws the shortest step after the second, unless --step selects another; a step begins and ends with the forward
passes of the first rank. tools/mesh_timelines.sh makes the pictures of docs/parallelism.md.
"""

import argparse
import html
import json
import sys

WIDTH, LEFT, RIGHT, ROW, GAP = 960, 118, 14, 17, 3
PHASES = {"data": "#c9ced6", "forward": "#8fb8e8", "backward": "#4f86c6", "clip": "#b7a6d6", "optimizer": "#8cc9a1",
          "other": "#e3e6ea", "log": "#e3e6ea"}
OPERATIONS = {"all_reduce": "#d9822b", "all_gather": "#3a9188", "reduce_scatter": "#a4508b", "all_to_all": "#7a7d2a",
              "send": "#5966b8", "recv": "#9aa3dd", "broadcast": "#777777"}
WAIT = "#c23b3b"


def read_trace(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ranks = {}
    for event in events:
        if event["ph"] == "X":
            event["end"] = event["ts"] + event["dur"]
            ranks.setdefault(event["pid"], []).append(event)
    return ranks


def phase(events, name):
    return sorted((e for e in events if e["cat"] == "phase" and e["name"] == name), key=lambda e: e["ts"])


def steps(ranks):
    """(begin, end) of each step of the first rank, in microseconds."""
    first = ranks[min(ranks)]
    begins = [e["ts"] for e in phase(first, "forward")]
    ends = [e["end"] for e in phase(first, "optimizer")]
    return [(b, min(e for e in ends if e > b)) for b in begins if any(e > b for e in ends)]


class Picture:
    def __init__(self, begin, end):
        self.begin, self.scale = begin, (WIDTH - LEFT - RIGHT) / (end - begin)
        self.end, self.y, self.parts = end, 0, []

    def text(self, x, y, text, size=11, fill="#333", anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
                          f'font-weight="{weight}">{html.escape(text)}</text>')

    def bar(self, event, fill, label=None, height=ROW, ink="#fff"):
        begin, end = max(event["ts"], self.begin), min(event["end"], self.end)
        if end <= begin:
            return
        x, width = LEFT + (begin - self.begin) * self.scale, max((end - begin) * self.scale, 0.8)
        hint = f'{event["name"]} {event["dur"] / 1000:.2f} ms'
        self.parts.append(f'<rect x="{x:.1f}" y="{self.y}" width="{width:.1f}" height="{height}" fill="{fill}">'
                          f'<title>{html.escape(hint)}</title></rect>')
        if label and width > 6.2 * len(label) + 4:
            self.text(x + width / 2, self.y + 12.5, label, 10.5, ink, "middle")

    def row(self, name, events, paint):
        self.text(LEFT - 8, self.y + 12.5, name, anchor="end", fill="#555")
        for event in events:
            paint(event)
        self.y += ROW + GAP


def draw(ranks, begin, end, title):
    picture = Picture(begin, end)
    picture.y = 40
    for rank in sorted(ranks):
        inside = [e for e in ranks[rank] if e["end"] > begin and e["ts"] < end]
        picture.text(8, picture.y + 12.5, f"rank {rank}", weight="bold")
        picture.row("", [e for e in inside if e["cat"] == "phase"],
                    lambda e: picture.bar(e, PHASES.get(e["name"], "#e3e6ea"), e["name"], ink="#1c2733"))
        axes = {}
        for event in inside:
            if event["cat"] == "collective" and event["args"]["axis"] != "world" and event["args"]["payload_bytes"] > 0:
                axes.setdefault(event["args"]["axis"], {}).setdefault(event["tid"], []).append(event)
        for axis in sorted(axes, reverse=True):
            name = axis
            for lane in sorted(axes[axis]):  # a group has several lanes if its collectives overlap
                picture.row(name, axes[axis][lane],
                            lambda e: picture.bar(e, OPERATIONS.get(e["name"], "#777"), e["name"].replace("_", "-")))
                name = ""
        picture.row("waits", [e for e in inside if e["cat"] == "wait"], lambda e: picture.bar(e, WAIT, height=6))
        picture.y += 4
    length = (end - begin) / 1000
    picture.text(8, 16, title, 13, "#111", weight="bold")
    picture.text(WIDTH - RIGHT, 16, f"one step, {length:.1f} ms", 11, "#555", "end")
    x = LEFT
    drawn = {e["name"] for events in ranks.values() for e in events if e["cat"] == "collective" and
             e["ts"] < end and e["end"] > begin and e["args"]["axis"] != "world"}
    used = [o for o in OPERATIONS if o in drawn]
    for name, colour in [(o.replace("_", "-"), OPERATIONS[o]) for o in used] + [("waiting for other ranks", WAIT)]:
        picture.parts.append(f'<rect x="{x}" y="24" width="9" height="9" fill="{colour}"/>')
        picture.text(x + 13, 32.5, name, 10.5, "#555")
        x += 13 + 6.2 * len(name) + 14
    height = picture.y + 6
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, DejaVu Sans, sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(picture.parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--title", default="")
    parser.add_argument("--step", type=int, help="number of the step, from 1")
    arguments = parser.parse_args()
    ranks = read_trace(arguments.trace)
    if not ranks:
        sys.exit(f"{arguments.trace}: no events; was the run made with --profile?")
    found = steps(ranks)
    if arguments.step is not None and not 1 <= arguments.step <= len(found):
        sys.exit(f"--step {arguments.step}: the timeline has steps 1 to {len(found)}")
    chosen = found[arguments.step - 1] if arguments.step else min(found[2:] or found, key=lambda s: s[1] - s[0])
    sys.stdout.write(draw(ranks, *chosen, arguments.title or arguments.trace))


if __name__ == "__main__":
    main()
