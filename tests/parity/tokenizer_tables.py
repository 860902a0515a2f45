#!/usr/bin/env python3
"""Tables of what Hugging Face `tokenizers` knows of Unicode beyond tokenizer_fixtures.py, by asking it.

  tokenizer_tables.py > tessera/text/unicode/pipeline_tables.h
      compatibility decompositions, combining marks, borders of graphemes, scripts
Needs `sentencepiece` too: its trainer makes the charsmap by which graphemes show.
"""
import base64
import json
import os
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] + 1 == c:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def charsmap(rules):
    """The precompiled charsmap of {text: text}."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rules.tsv", "w") as out:
            for old, new in rules.items():
                out.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
        with open(f"{folder}/text.txt", "w") as out:
            out.write("hello world\nthe quick brown fox\n" * 20)
        sentencepiece.SentencePieceTrainer.train(
            input=f"{folder}/text.txt", model_prefix=f"{folder}/m", vocab_size=30, model_type="unigram",
            normalization_rule_tsv=f"{folder}/rules.tsv", hard_vocab_limit=False, minloglevel=2)
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        with open(f"{folder}/m.model", "rb") as model:
            return charsmap_of_model(model.read())


def charsmap_of_model(data):
    """normalizer_spec.precompiled_charsmap of a ModelProto (fields 3 and 2)."""
    for number, value in fields(data):
        if number == 3:
            for inner, blob in fields(value):
                if inner == 2:
                    return blob
    raise ValueError("no charsmap")


def fields(data):
    """(number, value) of the fields of a protobuf message; bytes or int."""
    at = 0

    def varint():
        nonlocal at
        result = shift = 0
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield key >> 3, data[at:at + size]
            at += size
        else:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size


def precompiled(rules):
    blob = base64.b64encode(charsmap(rules)).decode()
    tokenizer = Tokenizer(models.BPE())
    tree = json.loads(tokenizer.to_str())
    tree["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": blob}
    return Tokenizer.from_str(json.dumps(tree)).normalizer.normalize_str


def grapheme_tables():
    by_a = precompiled({"a": "Z"})
    extend = {c for c in POINTS if c not in (0x61, 0x41) and by_a("a" + chr(c)) == "Z"}
    prepend = {c for c in POINTS if c not in (0x61, ) and by_a(chr(c) + "a\u0301").endswith("Z\u0301")}
    few = [c for c in POINTS if 0 < c < 0x10000 and c != 0x2581 and not 0x20 <= c < 0x7F]
    by_all = precompiled({chr(c): "Z" for c in few})
    control = {c for c in few if by_all(chr(c) + "\u0301") != "Z"} | {0}
    return extend, prepend, control


def compatibility():
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    return {c: nfkd(chr(c)) for c in POINTS if nfkd(chr(c)) != nfd(chr(c))}


def combining():
    strip = normalizers.StripAccents().normalize_str
    return {c for c in POINTS if strip("x" + chr(c)) == "x"}


def script_runs():
    """(first, last, class): 0 is Any; other classes are numbered as they come up."""
    cut = pre_tokenizers.UnicodeScripts().pre_tokenize_str
    representatives, found = [], []
    for c in POINTS:
        character = chr(c)
        if found and found[-1][1] + 1 == c and same(cut, found[-1][2], character, representatives):
            found[-1][1] = c
            continue
        if not cut(character):
            kind = 0
        else:
            kind = next((i + 1 for i, r in enumerate(representatives) if len(cut(r + character)) == 1), None)
            if kind is None:
                representatives.append(character)
                kind = len(representatives)
        found.append([c, c, kind])
    return found, len(representatives)


def same(cut, kind, character, representatives):
    if kind == 0:
        return not cut(character)
    return bool(cut(character)) and len(cut(representatives[kind - 1] + character)) == 1


def items(values):
    line, lines = "   ", []
    for value in values:
        if len(line) + len(value) + 2 > 118:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join(lines + [line]) + "\n}};\n"


def main():
    print(f"""#pragma once
/// \\file
/// Generated by tests/parity/tokenizer_tables.py from Hugging Face tokenizers {tokenizers.__version__}. Do not
    edit: text must
/// normalize and split as it does there, whatever Unicode says later.
/// Long because: it is tables of code points.

#include <tessera/text/unicode/code_set.h>

#include <array>
#include <cstdint>

namespace tessera::text {{
""")
    for name, comment, points in [
            ("combining_mark", "What StripAccents removes.", combining()),
            *zip(("grapheme_extend", "grapheme_prepend", "grapheme_control"),
                 ("Code points that join what stands before them in one grapheme.",
                  "Code points that join what stands after them, unless it is a control.",
                  "Controls of at most three bytes: graphemes of their own."), grapheme_tables())]:
        found = ranges(points)
        print(f"/// {comment}\ninline constexpr std::array<CodeRange, {len(found)}> {name}_ranges{{{{")
        print(items(f"{{0x{a:x}, 0x{b:x}}}" for a, b in found))
    table = compatibility()
    single = {c: ord(t) for c, t in table.items() if len(t) == 1}
    runs = []
    for c, t in sorted(single.items()):
        if runs and runs[-1][1] + 1 == c and runs[-1][2] + c - runs[-1][0] == t:
            runs[-1][1] = c
        else:
            runs.append([c, c, t])
    print("/// Compatibility decompositions of one code point, in full: "
          "code point first + i decomposes into target + i."
          "\nstruct CompatibilityRun {\n  std::uint32_t first, last, target;\n};\n"
          f"inline constexpr std::array<CompatibilityRun, {len(runs)}> compatibility_runs{{{{")
    print(items(f"{{0x{a:x}, 0x{b:x}, 0x{t:x}}}" for a, b, t in runs))
    longer = [(c, t) for c, t in sorted(table.items()) if len(t) > 1]
    flat = [x for c, t in longer for x in (c, len(t), *map(ord, t))]
    print("/// The others: a code point, how many it decomposes into, and these.\n"
          f"inline constexpr std::array<std::uint32_t, {len(flat)}> long_compatibility{{{{")
    print(items(f"0x{x:x}" for x in flat))
    found, classes = script_runs()
    kept = [run for run in found if run[2] != 0]
    print(f"/// Classes of UnicodeScripts, 1 to {classes}; code points outside are common to all.\n"
          "struct ScriptRun {\n  std::uint32_t first, last;\n  std::uint8_t script;\n};\n"
          f"inline constexpr std::array<ScriptRun, {len(kept)}> script_runs{{{{")
    print(items(f"{{0x{a:x}, 0x{b:x}, {k}}}" for a, b, k in kept))
    print("}  // namespace tessera::text")


if __name__ == "__main__":
    main()
