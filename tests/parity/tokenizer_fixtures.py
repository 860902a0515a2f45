#!/usr/bin/env python3
"""Fixtures and comparisons of the tokenizer tests that need Hugging Face `tokenizers` (its version is in the fixtures).

  tokenizer_fixtures.py fixtures TEXT tests/fixtures/text
      small tokenizers, cases and their ids
  tokenizer_fixtures.py family_fixtures TEXT tests/fixtures/text
      a small tokenizer of each family, cases and their ids
  tokenizer_fixtures.py compare TESSERA TEXT TOKENIZER_JSON [N]
      ids of N cases, ours (the program) against theirs
  tokenizer_fixtures.py families TESSERA TEXT FOLDER [N]
      trains one of each family into FOLDER and compares
  tokenizer_fixtures.py train TEXT VOCAB_SIZE OUT_JSON
      trains with `tokenizers` on the whole text as one document

TEXT is natural English text, e.g. the King James Bible of Debian's bible-kjv-text. Not needed by `make test`.
The file is not called tokenizers.py because scripts in this folder import the package of that name.
"""
import json
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


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
    if kind == 3:  # the planes of common scripts
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
    plain = train(sample[:20_000], 400)  # the training test must reproduce it
    with open(f"{folder}/train.txt", "w", encoding="utf-8") as out:
        out.write(sample[:20_000])
    with open(f"{folder}/train_merges.json", "w", encoding="utf-8") as out:
        json.dump(json.loads(plain.to_str())["model"]["merges"], out, ensure_ascii=False, separators=(",", ":"))
    # the second tokenizer: prefix space, old-style merges, added tokens that strip
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
    """name -> Tokenizer: the components of common models, trained on a part of `text`."""
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
    """Added tokens with all combinations of flags among words, blanks and each other; composed and decomposed."""
    glue = ["", "", " ", "  ", "\n", "x", "_", "1", ".", "\u00a0", "\u0301", "é", "中", "the ", " and"]
    out = "".join(rng.choice(glue) + rng.choice(ADDED + MARKERS + ["<a", "ad", "café1"]) + rng.choice(glue)
                  for _ in range(rng.randrange(8)))
    return unicodedata.normalize("NFD", out) if rng.random() < 0.3 else out


def normalizing(rng):
    """Letters with marks in any order and form, Hangul letters and syllables, exclusions of NFC."""
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
    """Compares ids of cases and of the whole text, with the special tokens of the post-processor."""
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
    if command == "fixtures":
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
