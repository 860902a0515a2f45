#!/usr/bin/env python3
"""Everything of the tokenizer tests that needs Hugging Face `tokenizers` (the version is printed into what it makes).

  tokenizer_fixtures.py properties > tessera/text/unicode/unicode_properties.h
      code points by property, as its regular expressions and others of its parts see them
  tokenizer_fixtures.py normal_forms > tessera/text/unicode/normal_form_tables.h
      canonical (de)composition there
  tokenizer_fixtures.py fixtures TEXT tests/fixtures/text
      small tokenizers, cases and their ids
  tokenizer_fixtures.py family_fixtures TEXT tests/fixtures/text
      a small tokenizer of each family, cases and their ids
  tokenizer_fixtures.py compare TESSERA TEXT TOKENIZER_JSON [N]
      ids of N cases, ours (the program) against theirs
  tokenizer_fixtures.py families TESSERA TEXT FOLDER [N]
      trains one of each family into FOLDER and compares
  tokenizer_fixtures.py train TEXT VOCAB_SIZE OUT_JSON
      their training on the whole text as one document

TEXT is natural English text, e.g. the King James Bible of Debian's bible-kjv-text. `make test` needs none of this.
The name is not tokenizers.py because scripts in this folder import the package of that name.
"""
import json
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def write_trained_models(text, path):
    """What their trainers of WordPiece and Unigram learn: a vocabulary, and how many tokens the text becomes."""
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=False)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.train([text], trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train([text], trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    with open(text, encoding="utf-8", newline="") as file:
        tokens = sum(len(unigram.encode(line, add_special_tokens=False).ids) for line in file)
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"wordpiece": sorted(wordpiece.get_vocab()), "unigram_tokens": tokens}, out, ensure_ascii=False,
                  indent=0)


def class_ranges(pattern):
    """Sorted [first, last] of the code points that `pattern` matches in HF's regex engine (surrogates cannot be
    asked)."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    inside = set(points)
    step = 4096
    for begin in range(0, len(points), step):
        chunk = points[begin:begin + step]
        for _, (first, last) in splitter.pre_tokenize_str("".join(map(chr, chunk))):
            inside.difference_update(chunk[first:last])
    ranges = []
    for c in sorted(inside):
        if ranges and ranges[-1][1] + 1 == c:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def as_ranges(points):
    ranges = []
    for c in sorted(points):
        if ranges and ranges[-1][1] + 1 == c:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def lettered(is_member):
    """Code points that is_member(chunk) -> set of positions finds among the odd places of "aXaYa"."""
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


def print_items(items):
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 118:
            print(line)
            line = "   "
        line += f" {item},"
    print(line + "\n}};\n")


def members(ranges):
    return {c for a, b in ranges for c in range(a, b + 1)}


def as_runs(points):
    """Runs (first, last, step) of the points in order, each the longest there is with step 1 or 2."""
    points, runs, at = sorted(points), [], 0
    while at < len(points):
        best = (1, 1)
        for step in (1, 2):
            end = at
            while end + 1 < len(points) and points[end + 1] - points[end] == step:
                end += 1
            best = max(best, (end - at + 1, step), key=lambda run: run[0])
        runs.append((points[at], points[at + best[0] - 1], best[1]))
        at += best[0]
    return runs


def write_properties():
    print("#pragma once")
    print("/// \\file")
    print("/// Generated by tests/parity/tokenizer_fixtures.py properties from Hugging Face tokenizers "
          + tokenizers.__version__ + ".")
    print("/// Do not edit: ids must equal theirs, whatever Unicode says later. Its parts know Unicode in different "
          "versions.")
    print("/// Long because: a table for each property.")
    print("\n#include <array>\n#include <cstdint>\n\nnamespace tessera::text {\n")
    print("/// first, first + step, ..., last: upper and lower case take turns in most alphabets.")
    print("struct CodeRun {\n  std::uint32_t first, last, step = 1;\n};\n")
    of = {pattern: members(class_ranges(pattern)) for pattern in (
        r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{L}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Nd}",
        r"\p{N}", r"\s")}
    letters = set.union(*(of[r"\p{L" + kind + "}"] for kind in "ultmo"))
    assert letters == of[r"\p{L}"] and of[r"\p{Nd}"] <= of[r"\p{N}"]
    numbers, words = rust_numbers(), rust_words()
    plain_words = letters | of[r"\p{M}"] | of[r"\p{Nd}"]
    assert of[r"\p{N}"] <= numbers and plain_words <= words
    for name, comment, points in [
            ("upper_case", r"\p{Lu} of its regular expressions", of[r"\p{Lu}"]),
            ("lower_case", r"\p{Ll}", of[r"\p{Ll}"]),
            ("title", r"\p{Lt}", of[r"\p{Lt}"]), ("modifier_letter", r"\p{Lm}", of[r"\p{Lm}"]),
            ("other_letter", r"\p{Lo}; \p{L} is these five", of[r"\p{Lo}"]), ("mark", r"\p{M}", of[r"\p{M}"]),
            ("punctuation", r"\p{P}", of[r"\p{P}"]), ("symbol", r"\p{S}", of[r"\p{S}"]),
            ("decimal", r"\p{Nd}", of[r"\p{Nd}"]),
            ("other_number", r"\p{N} besides", of[r"\p{N}"] - of[r"\p{Nd}"]), ("space", r"\s", of[r"\s"]),
            ("more_number", r"numbers to Digits that are no \p{N}", numbers - of[r"\p{N}"]),
            ("more_word", r"\w where an added token's single_word is decided, besides letters, \p{M} and \p{Nd}",
             words - plain_words)]:
        runs = as_runs(points)
        print(f"/// {comment}\ninline constexpr std::array<CodeRun, {len(runs)}> {name}_runs{{{{")
        print_items(f"{{0x{a:x}, 0x{b:x}" + (f", {k}}}" if k > 1 else "}") for a, b, k in runs)
    print("}  // namespace tessera::text")


def write_normal_forms():
    """Everything by asking: decompositions of single characters, classes by which of two marks moves."""
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
    # classes: a mark of known class on either side tells less from greater
    overlay, iota = "\u0334", "\u0345"  # classes 1 and 240, the least and the greatest
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
    runs = []
    for c, k in sorted(classes.items()):
        if runs and runs[-1][1] + 1 == c and runs[-1][2] == k:
            runs[-1][1] = c
        else:
            runs.append([c, c, k])
    print("#pragma once")
    print("/// \\file")
    print("/// Generated by tests/parity/tokenizer_fixtures.py normal_forms from Hugging Face tokenizers "
          + tokenizers.__version__ + " (its")
    print("/// unicode-normalization-alignments knows an older Unicode than its regular expressions). Do not edit.\n"
          "/// Long because: it is a table of code points.")
    print("\n#include <array>\n#include <cstdint>\n\nnamespace tessera::text {\n")
    print("/// Canonical decomposition of one code point (Hangul is arithmetic and not here): into first and second, "
          "of which\n"
          "/// first may decompose again; second = 0: into first alone.\n"
          "struct Decomposition {\n  std::uint32_t code, first, second;\n};\n")
    for name, comment, keep in [("compositions", "that NFC joins again", True),
                                ("one_way_decompositions", "that NFC leaves apart", False)]:
        items = [f"{{0x{c:x}, 0x{a:x}, 0x{b:x}}}" for c, a, b, back in pairs if back == keep]
        print(f"/// Those {comment}.\ninline constexpr std::array<Decomposition, {len(items)}> {name}{{{{")
        print_items(items)
    print("/// Canonical combining class, of all code points where it is not 0.\n"
          "struct CombiningRange {\n  std::uint32_t first, last;  ///< both included\n  std::uint8_t "
          "combining_class;\n};\n")
    print(f"inline constexpr std::array<CombiningRange, {len(runs)}> combining_ranges{{{{")
    print_items(f"{{0x{a:x}, 0x{b:x}, {k}}}" for a, b, k in runs)
    print("}  // namespace tessera::text")


def byte_level(add_prefix_space=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(text, vocab_size, **options):
    tokenizer = byte_level(options.get("add_prefix_space", False))
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


SPACES = " \t\n\r\v\f\u00a0\u0085\u180e\u2003\u2028\u200b\u3000\ufeff"
PIECES = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "''", "' ", "’s", "<|endoftext|>", "<|endoftext", "  ",
          " \n", "\n\n", "don't", " I'll", "été", "ß", "Ǆ", "中文", "日本語", "हिन्दी", "العربية", "🙂", "👩‍👩‍👧", "e\u0301",
          "½", "Ⅷ", "٣", "x²", "\0", "\x7f", "\u00ad", "\ufffd", "\U0010ffff", "\ue000", "...",
          "--", "0123", "3.14", "a_b", "#!", "{}", "[x]", "the", " the", " God"]


def fuzzed(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return "".join(rng.choice(PIECES) for _ in range(rng.randrange(12)))
    if kind == 1:
        return "".join(rng.choice(PIECES + list(SPACES) * 2) for _ in range(rng.randrange(20)))
    if kind == 2:  # any code point
        points = (rng.randrange(0x110000) for _ in range(rng.randrange(16)))
        return "".join(chr(c) for c in points if not 0xD800 <= c <= 0xDFFF)
    if kind == 3:  # the planes that people write in
        points = (rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x10000),
                              rng.randrange(0x1D000, 0x20000)])
                  for _ in range(rng.randrange(24)))
        return "".join(chr(c) for c in points if not 0xD800 <= c <= 0xDFFF)
    return "".join(rng.choice(SPACES + "ab1.'") for _ in range(rng.randrange(16)))


def natural(rng, text):
    begin = rng.randrange(len(text))
    return text[begin:begin + rng.randrange(1, 400)]


def cases_of(text, count, seed):
    rng = random.Random(seed)
    return [natural(rng, text) if i % 4 == 0 else fuzzed(rng) for i in range(count)]


def write_fixtures(text_path, folder):
    text = open(text_path, encoding="utf-8").read()
    sample = text[:200_000]
    tokenizer = train(sample, 1000)
    tokenizer.save(f"{folder}/tokenizer.json", pretty=False)
    plain = train(sample[:20_000], 400)  # what the training test must reproduce
    with open(f"{folder}/train.txt", "w", encoding="utf-8") as out:
        out.write(sample[:20_000])
    write_trained_models(f"{folder}/train.txt", f"{folder}/train_models.json")
    with open(f"{folder}/train_merges.json", "w", encoding="utf-8") as out:
        json.dump(json.loads(plain.to_str())["model"]["merges"], out, ensure_ascii=False, separators=(",", ":"))
    # the second tokenizer: prefix space, old style merges, added tokens that strip
    other = train(sample, 500, add_prefix_space=True)
    other.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                              AddedToken("<pad>", rstrip=True, normalized=False)])
    other.add_tokens([AddedToken("New Jerusalem", normalized=True), AddedToken("New", normalized=True),
                      AddedToken("  ", normalized=True)])
    tree = json.loads(other.to_str())
    tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]
    with open(f"{folder}/prefix_space.json", "w", encoding="utf-8") as out:
        json.dump(tree, out, ensure_ascii=False, indent=1)
    other = Tokenizer.from_file(f"{folder}/prefix_space.json")
    extra = ["", " ", "a", " a", "x <mask> y", "x<mask>y", "<pad>   z", "New Jerusalem and New  York",
             "<mask><mask>  <pad> <pad>", "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> "]
    cases = extra + cases_of(text, 320, 1)
    with open(f"{folder}/cases.jsonl", "w", encoding="utf-8") as out:
        for case in cases:
            row = {"text": case}
            for name, which in [("ids", tokenizer), ("prefix_space_ids", other)]:
                row[name] = which.encode(case, add_special_tokens=False).ids
            assert tokenizer.decode(row["ids"], skip_special_tokens=False) == case
            out.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


QUICK = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
         r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEP = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def families(text, vocab_size):
    """name -> Tokenizer: the components of the models people use, trained on a part of `text`."""
    split = lambda pattern, behavior="isolated", invert=False: pre_tokenizers.Split(Regex(pattern), behavior, invert)
    sequence = lambda *steps: pre_tokenizers.Sequence(list(steps))
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    parts = {
        "gpt2": (gpt2, None),
        "llama3": (sequence(split(QUICK), bytes_only), None),
        "qwen2": (sequence(split(QUICK.replace("{1,3}", "")), bytes_only), normalizers.NFC()),
        "smollm2": (sequence(digits, gpt2), None),
        "deepseek_v2": (sequence(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-\ud7ff]+"),
                                 digits, bytes_only), None),
        "deepseek_v3": (sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEP), bytes_only), None),
        "gpt4o": (sequence(split(CASED), bytes_only), None),
        "added_tokens": (gpt2, normalizers.Sequence([normalizers.NFC()])),
        "behaviors": (sequence(split(r"\p{P}", "merged_with_previous"), split(r"\s", "merged_with_next"),
                               split("e", "contiguous"), split(r"\p{L}+", "removed", True),
                               pre_tokenizers.Split("the", "isolated"), pre_tokenizers.Digits(individual_digits=False),
                               pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)), normalizers.NFD()),
    }
    extra = "def f(x):\n    return x + 123456  # été naïve 中文 日本語 हिन्दी e\u0301\n" * 50
    made = {}
    for name, (pre_tokenizer, normalizer) in parts.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
        if normalizer:
            tokenizer.normalizer = normalizer
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=MARKERS, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator([text, extra], trainer)
        if name == "llama3":
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                            processors.TemplateProcessing(
                single="<|im_start|> $A <|im_end|>", pair="$A $B:1",
                special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)])])
            tree = json.loads(tokenizer.to_str())
            tree["model"]["ignore_merges"] = True
            tokenizer = Tokenizer.from_str(json.dumps(tree))
        if name == "added_tokens":
            for flags in range(16):
                single_word, lstrip, rstrip, normalized = (bool(flags >> bit & 1) for bit in range(4))
                tokenizer.add_tokens([AddedToken(ADDED[flags], single_word=single_word, lstrip=lstrip, rstrip=rstrip,
                                                 normalized=normalized)])
        made[name] = tokenizer
    return made


ADDED = [f"<a{flags}>" if flags % 3 == 0 else f"ad{flags}" if flags % 3 == 1 else f"caf\u00e9{flags}"
         for flags in range(16)]


def with_added(rng):
    """Added tokens of all kinds of flags among words, blanks and each other; composed and decomposed."""
    glue = ["", "", " ", "  ", "\n", "x", "_", "1", ".", "\u00a0", "\u0301", "é", "中", "the ", " and"]
    out = "".join(rng.choice(glue) + rng.choice(ADDED + MARKERS + ["<a", "ad", "café1"]) + rng.choice(glue)
                  for _ in range(rng.randrange(8)))
    return unicodedata.normalize("NFD", out) if rng.random() < 0.3 else out


def normalizing(rng):
    """Letters with marks in any order and form, Hangul in letters and syllables, what form C excludes."""
    pool = ["e", "a", "A", "o", " ",
            "1"] + [chr(c) for c in (*range(0x300, 0x34f), 0x1e69, 0x1e0b, 0x212b, 0x2126, 0x958, 0x915, 0x93c, 0x9c7,
            0x9be, 0x9d7, 0xf900, 0x2f800, 0x1100, 0x1161, 0x11a8, 0x11c2, 0x11a7, 0xac00, 0xac01, 0xd7a3, 0xfb2c,
                                     0x5e9, 0x5bc, 0x5c1, 0x344, 0xf73,
            0xf71, 0x1d15e, 0x11099, 0x110ba, 0x11938, 0x11935, 0x11930, 0x1dfa, 0x8d4, 0x3099, 0x304b, 0x304c)]
    return "".join(rng.choice(pool) for _ in range(rng.randrange(14)))


def family_cases(text, count, seed):
    rng = random.Random(seed)
    return [natural(rng, text) if i % 5 == 0 else with_added(rng) if i % 5 == 1 else normalizing(rng) if i % 5 == 2
            else fuzzed(rng)
            for i in range(count)]


def write_family_fixtures(text_path, folder):
    text = open(text_path, encoding="utf-8").read()
    made = families(text[:100_000], 420)
    cases = [case[:100] for case in family_cases(text, 150, 3)]
    for name, tokenizer in made.items():
        tokenizer.save(f"{folder}/family_{name}.json", pretty=False)
    with open(f"{folder}/family_cases.jsonl", "w", encoding="utf-8") as out:
        for case in cases:
            row = {"text": case} | {name: tokenizer.encode(case, add_special_tokens=False).ids
                                    for name, tokenizer in made.items()}
            out.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def compare(program, text_path, tokenizer_path, count):
    """Of the whole text as well, and with the special tokens of the post-processor."""
    text = open(text_path, encoding="utf-8").read()
    tokenizer = Tokenizer.from_file(tokenizer_path)
    cases = family_cases(text, count, 20260101) + [text]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as rows:
        rows.writelines(json.dumps({"text": case}) + "\n" for case in cases)
        rows.flush()
        answer = subprocess.run([program, "tokenizer", "encode", "--tokenizer_name", tokenizer_path,
                                 "--file", rows.name, "--add_special_tokens"],
                                text=True, capture_output=True, check=True).stdout.splitlines()
    assert len(answer) == len(cases), (len(answer), len(cases))
    wrong = 0
    for case, line in zip(cases, answer):
        theirs = tokenizer.encode(case).ids
        if json.loads(line) != theirs:
            wrong += 1
            if wrong <= 10:
                print(repr(case[:200]), "ours", line[:200], "theirs", theirs[:50])
    print(f"{tokenizer_path}: {len(cases)} cases, {wrong} differences (tokenizers {tokenizers.__version__})",
          flush=True)
    return wrong


def compare_families(program, text_path, folder, count):
    text = open(text_path, encoding="utf-8").read()
    wrong = 0
    for name, tokenizer in families(text[:1_000_000], 8000).items():
        tokenizer.save(f"{folder}/{name}.json")
        wrong += compare(program, text_path, f"{folder}/{name}.json", count)
    return wrong


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "properties":
        write_properties()
    elif command == "normal_forms":
        write_normal_forms()
    elif command == "fixtures":
        write_fixtures(*arguments)
    elif command == "compare":
        sys.exit(1 if compare(*arguments[:3], int(arguments[3]) if len(arguments) > 3 else 20_000) else 0)
    elif command == "family_fixtures":
        write_family_fixtures(*arguments)
    elif command == "families":
        sys.exit(1 if compare_families(*arguments[:3], int(arguments[3]) if len(arguments) > 3 else 20_000) else 0)
    elif command == "train":
        train(open(arguments[0], encoding="utf-8").read(), int(arguments[1])).save(arguments[2])
    else:
        sys.exit(__doc__)
