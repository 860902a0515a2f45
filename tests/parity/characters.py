#!/usr/bin/env python3
"""Writes tessera/text/unicode/characters.txt: the character properties of Hugging Face `tokenizers` and Python's str,
queried for every code point (ten minutes).

  characters.py > tessera/text/unicode/characters.txt
Needs tokenizers 0.23.3, Python 3.11 and `sentencepiece`, whose trainer makes the charsmap that reveals graphemes.
"""
import base64
import json
import os
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """Code points that `pattern` matches in HF's regex engine."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    inside = set(POINTS)
    for begin in range(0, len(POINTS), 4096):
        chunk = POINTS[begin:begin + 4096]
        for _, (first, last) in splitter.pre_tokenize_str("".join(map(chr, chunk))):
            inside.difference_update(chunk[first:last])
    return inside


def lettered(is_member):
    """Code points whose positions is_member(chunk) returns; the code points are at the odd positions of "aXaYa"."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    inside = set()
    for begin in range(0, len(points), 4096):
        chunk = points[begin:begin + 4096]
        for k in is_member("".join("a" + chr(c) for c in chunk) + "a"):
            if k % 2 == 1:
                inside.add(chunk[k // 2])
    return inside


def rust_numbers():
    """char::is_numeric of the Rust library, by Digits(individual_digits=True)."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return lettered(lambda s: [a for _, (a, b) in digits.pre_tokenize_str(s) if b == a + 1])


def rust_words():
    """\\w of the Rust regex crate, by Whitespace (\\w+|[^\\w\\s]+)."""
    words = pre_tokenizers.Whitespace()
    return lettered(lambda s: [k for _, (a, b) in words.pre_tokenize_str(s) if b > a + 1 for k in range(a, b)])


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
    """Runs (first, last, class): 0 is Any; other classes are numbered in order of appearance."""
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


def normal_forms():
    """Normal forms by queries: decompositions of single characters, and combining classes from reordered marks."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    hangul = range(0xAC00, 0xAC00 + 11172)
    whole = {c: nfd(chr(c)) for c in points if c not in hangul and nfd(chr(c)) != chr(c)}
    code_of = {}
    for c, parts in whole.items():
        if parts not in code_of or nfc(chr(c)) == chr(c):
            code_of[parts] = chr(c)
    pairs = []
    for c, parts in whole.items():
        last = parts[-1] if len(parts) > 1 else ""
        first = parts[:-1] if last else parts
        if len(first) > 1:
            first = code_of[first]
        pairs.append((c, ord(first), ord(last) if last else 0, nfc(chr(c)) == chr(c)))
    # classes: marks of known class before and after the character show whether its class is lower or higher
    overlay, iota = "\u0334", "\u0345"  # classes 1 and 240, the lowest and the highest
    moves = lambda text: nfd(text) != text
    known = sorted((unicodedata.combining(chr(c)), c) for c in points if unicodedata.combining(chr(c))
                   and (moves(chr(c) + overlay) or moves(iota + chr(c))) and chr(c) == nfd(chr(c)))
    of_class = {k: c for k, c in reversed(known)}
    candidates = [c for c in points if nfd(chr(c)) == chr(c) and (moves(chr(c) + overlay) or moves(iota + chr(c)))]
    classes = {}
    for c in candidates:
        fits = [k for k, r in of_class.items() if nfd(chr(r) + chr(c)) == chr(r) + chr(c)
                and nfd(chr(c) + chr(r)) == chr(c) + chr(r)]
        assert len(fits) == 1, (hex(c), fits)
        classes[c] = fits[0]
    text = {c: chr(a) + (chr(b) if b else "") for c, a, b, _ in pairs}
    back = {c for c, _, _, again in pairs if again}
    return {"composed": {c: t for c, t in text.items() if c in back},
            "decomposed": {c: t for c, t in text.items() if c not in back}, "combining_class": classes}


def bert(**which):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                                         "lowercase": False} | which)


def runs_of(points):
    """Runs (first, last, step) of the sorted points, each the longest possible with step 1 or 2."""
    points, runs, at = sorted(points), [], 0
    while at < len(points):
        best = (1, 1)
        for step in (1, 2):
            end = at
            while end + 1 < len(points) and points[end + 1] - points[end] == step:
                end += 1
            if end - at >= step:  # two points at step 2 are shorter as two runs
                best = max(best, (end - at + 1, step), key=lambda run: run[0])
        runs.append((points[at], points[at + best[0] - 1], best[1]))
        at += best[0]
    return runs


def run_text(first, last, step=1):
    return f"{first:x}" + (f"-{last:x}" if last != first else "") + (f"/{step}" if step > 1 else "")


def set_tokens(points, base=()):
    """`base`: names and points of sets whose union equals `points` up to a few exceptions."""
    points = set(points)
    start = set().union(*(members for _, members in base))
    return ([f"@{name}" for name, _ in base] + ["!" + run_text(*run) for run in runs_of(start - points)]
            + [run_text(*run) for run in runs_of(points - start)])


def class_tokens(class_of):
    """class_of: code point -> number."""
    tokens = []
    for number in sorted(set(class_of.values())):
        tokens += [f"={number}"] + [run_text(*run) for run in runs_of(c for c, k in class_of.items() if k == number)]
    return tokens


def map_tokens(texts, base=None):
    """texts: code point -> text; `base`: name and texts of a mapping that agrees up to a few exceptions."""
    tokens = [f"@{base[0]}"] if base else []
    start = base[1] if base else {}
    tokens += ["!" + run_text(*run) for run in runs_of(start.keys() - texts.keys())]
    texts = {c: t for c, t in texts.items() if start.get(c) != t}
    deltas = {}
    for c, t in texts.items():
        if len(t) == 1:
            deltas.setdefault(ord(t) - c, []).append(c)
    shifted = {}
    for delta, points in deltas.items():
        for first, last, step in runs_of(points):
            if last - first >= 2 * step:
                shifted[first] = (last, step, delta)
    covered = {c for first, (last, step, _) in shifted.items() for c in range(first, last + 1, step)}
    previous = None
    for c in sorted(texts):
        if c in shifted:
            last, step, delta = shifted[c]
            tokens.append(f"{run_text(c, last, step)}>{c + delta:x}")
        if c in covered:
            continue
        text = ".".join(f"{ord(x):x}" for x in texts[c])
        if previous == c - 1:
            tokens[-1] += f",{text}"
        else:
            tokens.append(f"{c:x}>{text}")
        previous = c
    return tokens


def entry(name, tokens):
    """Lines of at most 120 characters; long lists are also split at commas."""
    lines, line = [], f"{name}:"
    for token in tokens:
        pieces = token.split(",")
        for i, piece in enumerate(pieces):
            text = piece + ("," if i + 1 < len(pieces) else "")
            space = " " if i == 0 else ""
            if len(line) + len(space) + len(text) > 120:
                lines.append(line)
                line, space = " ", ""
            line += space + text
    return "\n".join(lines + [line]) + "\n"


HEAD = """\
# Characters as tokenizers and templates see them. Written by tests/parity/characters.py from Hugging Face tokenizers
# {tokenizers}, whose parts know Unicode in different versions, and from Python's str ({unicode}). Do not edit: ids must
# equal theirs, whatever Unicode says later.
#
# Code points are hexadecimal: 41-5a is a range, 100-136/2 every second of one. Tokens hold in their order.
#   sets       @NAME adds a set, !41-5a takes a range out again
#   classes    =230 begins the members of class 230
#   mappings   41-5a>61 moves a range, df>73.73 gives a text, 41>61,62 gives texts to 41 and to 42; @NAME begins with
#              another mapping, !41 takes a code point out again
"""


def data_file(tables, versions):
    """tables: sets of code points, classes and mappings by name."""
    t, text = tables, HEAD.format(**versions)
    known = {}

    def put_set(name, base=()):
        nonlocal text
        known[name] = set(t[name])
        bases = [[(b, known[b]) for b in names] for names in base] + [[]]
        text += entry(name, min((set_tokens(t[name], b) for b in bases), key=lambda tokens: len(" ".join(tokens))))

    def section(comment):
        nonlocal text
        text += f"\n# {comment}\n"

    section("General categories as its regular expressions know them; No and space: \\p{N} besides Nd, \\s.")
    for name in ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "No", "P", "S", "space"):
        put_set(name)
    t["L"] = set().union(*(t[k] for k in ("Lu", "Ll", "Lt", "Lm", "Lo")))
    t["N"] = set(t["Nd"]) | set(t["No"])
    put_set("L", [("Lu", "Ll", "Lt", "Lm", "Lo")])
    put_set("N", [("Nd", "No")])
    section("What Digits cuts at; \\w where an added token's single_word is decided; what StripAccents removes.")
    put_set("digit", [("N",)])
    put_set("word", [("L", "M", "Nd")])
    put_set("combining", [("M",)])
    section("Bert: what clean_text removes and turns into blanks; what handle_chinese_chars puts between blanks; what\n"
            "# strip_accents removes (behind form D); what BertPreTokenizer leaves out, and what is a word to it.")
    for name, base in (("bert_space", [("space",)]), ("bert_chinese", []), ("bert_mark", [("M",), ("combining",)]),
                       ("bert_separator", [("space",), ("bert_space",)]), ("bert_punctuation", [("P",)])):
        put_set(name, base)
    t["assigned"] = t["L"] | set(t["M"]) | t["N"] | set(t["P"]) | set(t["S"])
    section("What has a category of these; with what clean_text removes, and what repr() of Python escapes.")
    put_set("assigned", [("L", "M", "N", "P", "S")])
    everything = {"all": range(0x110000)}
    t.update(everything)
    put_set("all")
    for name in ("bert_removed", "unprintable"):
        plain = set_tokens(t[name])
        rest = set(range(0x110000)) - t["assigned"]
        derived = (["@all", "!@assigned"] + ["!" + run_text(*r) for r in runs_of(rest - set(t[name]))]
                   + [run_text(*r) for r in runs_of(set(t[name]) - rest)])
        known[name] = set(t[name])
        text += entry(name, min(plain, derived, key=lambda tokens: len(" ".join(tokens))))
    section("Graphemes: what joins the one before it, and the one behind it; controls of at most three bytes.")
    put_set("extend", [("bert_mark",), ("combining",), ("M",)])
    put_set("prepend")
    put_set("control")
    section("UnicodeScripts: numbers of scripts; code points outside are common to all.")
    text += entry("script", class_tokens(t["script"]))
    section("Canonical combining classes other than 0.")
    text += entry("combining_class", class_tokens(t["combining_class"]))
    section("Canonical decompositions (the first part may decompose again): those that NFC joins again, and the\n"
            "# others; Hangul is arithmetic and not here. Then compatibility decompositions, in full.")
    for name in ("composed", "decomposed", "compatible"):
        text += entry(name, map_tokens(t[name]))
    section("Lower case to Bert; Python's str.lower(), str.upper() and str.title().")
    text += entry("bert_lower", map_tokens(t["bert_lower"]))
    text += entry("lower", map_tokens(t["lower"], ("bert_lower", t["bert_lower"])))
    text += entry("upper", map_tokens(t["upper"]))
    text += entry("title", map_tokens(t["title"], ("upper", t["upper"])))
    return text


def bert_tables():
    clean = {c: bert(clean_text=True).normalize_str(chr(c)) for c in POINTS}
    assert all(new in ("", " ", chr(c)) for c, new in clean.items())
    nfd = normalizers.NFD().normalize_str
    lower = {c: bert(lowercase=True).normalize_str(chr(c)) for c in POINTS}
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    kept = lettered(lambda s: [k for _, (a, b) in cut(s) for k in range(a, b)])
    return {
        "bert_removed": [c for c, new in clean.items() if new == ""],
        "bert_space": [c for c, new in clean.items() if new == " "],
        "bert_chinese": [c for c in POINTS if bert(handle_chinese_chars=True).normalize_str(chr(c)) != chr(c)],
        "bert_mark": [c for c in POINTS
                      if nfd(chr(c)) == chr(c) and bert(strip_accents=True).normalize_str(chr(c)) == ""],
        "bert_separator": [c for c in POINTS if c not in kept],
        "bert_punctuation": lettered(lambda s: [a for _, (a, b) in cut(s) if b == a + 1 and a % 2 == 1]),
        "bert_lower": {c: new for c, new in lower.items() if new != chr(c)}}


def python_tables():
    changed = lambda case: {c: case(chr(c)) for c in POINTS if case(chr(c)) != chr(c)}
    return {"lower": changed(str.lower), "upper": changed(str.upper),
            "title": {c: t for c, t in changed(str.title).items()},
            "unprintable": {c for c in range(0x110000) if not chr(c).isprintable()}}


def collected():
    tables = {name: matched(rf"\p{{{name}}}") for name in ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "P", "S", "Nd", "N")}
    tables["space"] = matched(r"\s")
    tables["No"] = tables["N"] - tables["Nd"]
    tables["extend"], tables["prepend"], tables["control"] = grapheme_tables()
    script, _ = script_runs()
    tables["script"] = {c: kind for first, last, kind in script if kind for c in range(first, last + 1)}
    return tables | normal_forms() | bert_tables() | python_tables() | {
        "digit": rust_numbers(), "word": rust_words(), "combining": combining(), "compatible": compatibility()}


if __name__ == "__main__":
    print(data_file(collected(), {"tokenizers": tokenizers.__version__,
                                  "unicode": f"Unicode {unicodedata.unidata_version}"}), end="")
