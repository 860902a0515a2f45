#!/usr/bin/env python3
"""Finds the constructions of docs/style.md in comments, messages and pages.

    tools/docs/english.py [FILE|FOLDER ...]     prints file:line, construction and line; then the counts
    tools/docs/english.py --check               fails where a file has more of them than english_counts.tsv records
    tools/docs/english.py --write               records the counts of the tree

The counts may only fall: a file that is not recorded may have none.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = pathlib.Path(__file__).with_name("english_counts.tsv")

# name -> regular expression for one line of prose (a comment's text, a string, a line of a page).
CONSTRUCTIONS = {
    "headless clause": r"(^|[.:;] )(What|Whatever|Whoever|Those|That|Who|Which|Where) "
    r"(?!(if|about|else|is the|are the)\b)[a-z`_]+ .*(\.|,|:|$)",
    "those that": r"\b(those|that) (that|which|of which|whose)\b(?! (it|there|the|a|an) )",
    "as X has it": r"\bas [A-Za-z']+ (has|have|had) (it|them)\b",
    "so many": r"\bso (many|much)\b(?! (that|as|more|faster|less|for))",
    "lies, stands": r"\b(lie|lies|lay|lying|stand|stands|stood)\b(?! (for|alone|in for|out|still|down)\b)",
    "is no": r"\b(is|are|was|were) no\b(?! (longer|more|less|fewer|other|need|way|doubt|reason|such)\b)",
    "there is none": r"\bthere (is|are|was|were) none\b",
    "tells, says": r"\b(tell|tells|told|says|said|say)\b(?! (apart)\b)",
    "beside": r"\bbeside\b(?!s)",
    "goes on": r"\b(go|goes|went|going) on\b",
    "of which": r"\b(of|from|by|to|in|on|at) (which|whom) (is|are|was|were|each|one|none|all|some|only)\b",
    "leave out": r"\b(leave|leaves|left|leaving) (it|them|one|one of them|both|this|that) out\b",
    "somebody": r"\b(somebody|anybody)\b",
    "history": r"\b(nowadays|formerly|used to be|from now on)\b",
}
COMPILED = {name: re.compile(text) for name, text in CONSTRUCTIONS.items()}

SOURCE = (".h", ".cpp", ".cu")
COMMENT = re.compile(r"(?:^|[^:\"'])//[/!]?<?\s?(.*)$")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def prose(path):
    """(line number, text) of what a reader reads in a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if path.suffix in SOURCE:
            if line.lstrip().startswith("#include"):
                continue
            comment = COMMENT.search(line)
            code = line
            if comment:
                yield number, comment.group(1)
                code = line[: comment.start(1)]
            for string in STRING.findall(code):
                if len(string.split()) >= 3:
                    yield number, string
        elif path.suffix == ".md":
            if line.startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith("    "):
                yield number, line
        elif path.suffix in (".py", ".sh"):
            comment = re.match(r"\s*#(?!!)\s?(.*)$", line)
            if comment:
                yield number, comment.group(1)


def files(arguments):
    listed = subprocess.run(["git", "ls-files", "--", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\n"):
        if not name.endswith(SOURCE + (".md", ".py", ".sh")) or name.startswith(("third_party/", "tests/fixtures/")):
            continue
        if name in ("docs/style.md", "tools/docs/english.py", "docs/configuration_keys.md") or name.endswith(".zh.md"):
            continue
        if (ROOT / name).is_file():
            yield name


def found(name):
    for number, text in prose(ROOT / name):
        for construction, pattern in COMPILED.items():
            if pattern.search(text):
                yield number, construction, text.strip()


def main(arguments):
    mode = arguments[0] if arguments and arguments[0].startswith("--") else None
    if mode not in (None, "--check", "--write"):
        sys.exit(__doc__)
    hits = {name: list(found(name)) for name in files([] if mode else arguments)}
    hits = {name: rows for name, rows in hits.items() if rows}
    if mode == "--write":
        RECORD.write_text("".join(f"{name}\t{len(rows)}\n" for name, rows in sorted(hits.items())))
        return
    if mode == "--check":
        recorded = {}
        for line in RECORD.read_text().split("\n"):
            if line:
                name, count = line.split("\t")
                recorded[name] = int(count)
        worse = [name for name, rows in hits.items() if len(rows) > recorded.get(name, 0)]
        for name in worse:
            print(f"{name}: {len(hits[name])} constructions of docs/style.md, {recorded.get(name, 0)} recorded:")
            for number, construction, text in hits[name]:
                print(f"  {name}:{number}: {construction}: {text}")
        if worse:
            sys.exit(1)
        return
    counts = dict.fromkeys(CONSTRUCTIONS, 0)
    for name, rows in hits.items():
        for number, construction, text in rows:
            print(f"{name}:{number}: {construction}: {text}")
            counts[construction] += 1
    print("; ".join(f"{name} {count}" for name, count in counts.items()), f"; in all {sum(counts.values())}")


if __name__ == "__main__":
    main(sys.argv[1:])
