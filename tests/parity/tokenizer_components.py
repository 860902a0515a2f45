#!/usr/bin/env python3
"""Every component of Hugging Face `tokenizers`, one small tokenizer each: fixtures and a
comparison.

  tokenizer_components.py fixtures TEXT tests/fixtures/text/pipeline
      families.jsonl, family_cases.jsonl and components.jsonl
  tokenizer_components.py compare TESSERA [N] [NAME ...]
      N cases of each component, ours (the program) against theirs
"""
import json
import random
import sys
import tempfile

from tokenizers import Tokenizer

from tokenizer_pipelines import (BLANK, FALLBACK, METASPACE, added, bpe, cases_of, compare, document,
    families, replace,
                                 sequence, template)
from characters import charsmap
import base64
import unicodedata

BYTES = {f"<0x{b:02X}>": b for b in range(256)}
# makes words visible: each ends with the bytes of "</w>"
WORDS = bpe(BYTES, [], byte_fallback=True, end_of_word_suffix="</w>")
RULES = {c: unicodedata.normalize("NFKC", c) for c in "½™①ﬁﷺ㎏ｱｆ…"} | {
    "\r": " ", "\n": " ", "\t": " ", "\x01": "", "\u00ad": "", "\u200b": " ", "e\u0301": "é",
        "ｶﾞ": "ガ", "ſ": "s"}


def split(pattern, behavior="Isolated", invert=False, regex=True):
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior,
            "invert": invert}


def plain(kind, **settings):
    return {"type": kind} | settings


def normalizer_rows():
    small_map = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(RULES)).decode()}
    rows = {kind: plain(kind) for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents",
        "Nmt", "ByteLevel")}
    rows |= {
        "Sequence": sequence("n", plain("NFKD"), plain("StripAccents"), plain("Lowercase")),
        "Strip": plain("Strip", strip_left=True, strip_right=True),
        "Strip_left": plain("Strip", strip_left=True, strip_right=False),
        "Strip_right": plain("Strip", strip_left=False, strip_right=True),
        "Replace": replace("a", "bc"), "Replace_nothing": replace("the", ""),
        "Replace_regex": replace(r"\s+", " ", regex=True), "Prepend": plain("Prepend", prepend=BLANK + "x"),
        "Precompiled": small_map,
        "BertNormalizer": plain("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None,
                                lowercase=True),
        "BertNormalizer_cased": plain("BertNormalizer", clean_text=False, handle_chinese_chars=True,
                                      strip_accents=True, lowercase=False)}
    return {f"normalizer_{name}": document(WORDS, normalizer=value) for name, value in rows.items()}


def pre_tokenizer_rows():
    rows = {kind: plain(kind) for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")}
    rows |= {f"Metaspace_{scheme}_{cuts}": METASPACE | {"prepend_scheme": scheme, "split": cuts == "split"}
             for scheme in ("always", "first", "never") for cuts in ("split", "whole")}
    rows |= {f"Punctuation_{behavior}": plain("Punctuation", behavior=behavior)
             for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")}
    rows |= {f"Split_{behavior}{'_inverted' * invert}": split(r"\s|\p{N}", behavior, invert)
             for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")
             for invert in (False, True)}
    rows |= {
        "ByteLevel": plain("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        "ByteLevel_whole": plain("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False),
        "Metaspace_underscore": METASPACE | {"replacement": "_"},
        "Digits": plain("Digits", individual_digits=False), "Digits_individual": plain("Digits",
            individual_digits=True),
        "Split_text": split(" ", "MergedWithPrevious", regex=False),
        "CharDelimiterSplit": plain("CharDelimiterSplit", delimiter="e"),
            "FixedLength": plain("FixedLength", length=3),
        "none": None,
        "Sequence": sequence("p", plain("WhitespaceSplit"), plain("Punctuation", behavior="MergedWithPrevious"),
                             plain("Digits", individual_digits=True), METASPACE | {"prepend_scheme": "first"}),
        "Sequence_bytes_first": sequence("p", plain("ByteLevel", add_prefix_space=False, trim_offsets=True,
                                                    use_regex=True), plain("Digits", individual_digits=True))}
    made = {f"pre_tokenizer_{name}": document(WORDS, pre_tokenizer=value) for name, value in rows.items()}
    # After a normalizer that removes the start of a text, the position where the text starts matters.
    for name, front in [("Strip", plain("Strip", strip_left=True, strip_right=False)), ("Replace", replace("a", "")),
                        ("StripAccents", plain("StripAccents"))]:
        made[f"front_{name}"] = document(WORDS, normalizer=front,
            pre_tokenizer=METASPACE | {"prepend_scheme": "first"},
                                         added_tokens=[added(256, "<s>")])
    return made


TOKENS = ["<unk>", "a", "b", " ", "  ", "a ", " a", "##b", "##", "b</w>", "</w>", BLANK, BLANK + "a",
    "a" + BLANK, BLANK * 2,
          "<0x61>", "<0xE2>", "<0x96>", "<0x81>", "<0xff>", "<0x+F>", "<0x0a>", "Ġ", "ĠaÂ", "é",
          "中", ".", "n't", " 's",
          "|", "<pad>", "a<pad>", "hello", "do", " do not"]


def decoder_rows():
    rows = {
        "ByteLevel": plain("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        "ByteFallback": plain("ByteFallback"), "Fuse": plain("Fuse"),
        "Strip": plain("Strip", content=" ", start=1, stop=0), "Strip_stop": plain("Strip",
            content="a", start=0, stop=1),
        "Replace": replace(BLANK, " "), "Replace_regex": replace(r"a|\.", "xy", regex=True),
        "Metaspace": METASPACE, "Metaspace_never": METASPACE | {"prepend_scheme": "never"},
        "WordPiece": plain("WordPiece", prefix="##", cleanup=True),
        "WordPiece_plain": plain("WordPiece", prefix="##", cleanup=False),
            "BPEDecoder": plain("BPEDecoder", suffix="</w>"),
        "CTC": plain("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=True),
        "CTC_plain": plain("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=False), "none": None,
        "Sequence": sequence("d", *FALLBACK, plain("Strip", content=" ", start=1, stop=0)),
        "Sequence_nested": sequence("d", plain("WordPiece", prefix="##", cleanup=True),
                                    sequence("d", plain("Fuse"), replace("a", "A")))}
    model = {"type": "WordLevel", "vocab": {token: i for i, token in enumerate(TOKENS)}, "unk_token": "<unk>"}
    return {f"decoder_{name}": document(model, decoder=value) for name, value in rows.items()}


def model_rows():
    vocab = {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "bc": 5, "abc": 6, BLANK: 7, BLANK + "a": 8,
        "aa": 9, "e": 10,
             "the": 11, "th": 12, "t": 13, "h": 14, "aab": 15, " ": 16}
    merges = [["a", "b"], ["b", "c"], ["ab", "c"], [BLANK, "a"], ["a", "a"], ["t", "h"], ["th", "e"], ["aa", "b"]]
    fallback = vocab | {name: 17 + b for name, b in BYTES.items()}
    some = {name: i for name, i in fallback.items() if i < 17 + 0xE4}
    prefixed = {"a": 0, "##b": 1, "ab": 2, "##c": 3, "##bc": 4, "abc": 5, "b": 6, "<unk>": 7, "##a": 8}
    pieces = [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -2.0], ["abc", -2.25], ["c", -3.0], [BLANK, -2.0],
              [BLANK + "a", -2.75], ["bc", -4.5], ["aa", -2.0], ["the", -3.5], ["éé", -9.0], ["t",
                  -4.0], ["he", -4.0]]
    words = {"<unk>": 0, "a": 1, "the": 2, "12": 3, ".": 4, "<s>": 5}
    space = plain("Whitespace")
    rows = {
        "BPE": document(bpe(vocab, merges, unk_token="<unk>")),
        "BPE_fuse_unk": document(bpe(vocab, merges, unk_token="<unk>", fuse_unk=True)),
        "BPE_without_unk": document(bpe(vocab, merges)),
        "BPE_ignore_merges": document(bpe(vocab, merges[:2], unk_token="<unk>", ignore_merges=True),
                                      pre_tokenizer=space),
        "BPE_byte_fallback": document(bpe(fallback, merges, unk_token="<unk>", byte_fallback=True)),
        "BPE_some_bytes": document(bpe(some, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)),
        "BPE_byte_merges": document(bpe(fallback | {"<0xC3><0xA9>": 300, "a" + BLANK: 301}, merges + [
            ["<0xC3>", "<0xA9>"], ["a", BLANK]], unk_token="<unk>", byte_fallback=True)),
        "BPE_suffix": document(bpe({"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3, "c</w>": 4, "bc</w>": 5, "<unk>": 6},
                                   [["b", "c</w>"], ["a", "b</w>"]], unk_token="<unk>", end_of_word_suffix="</w>"),
                               pre_tokenizer=space),
        "BPE_prefix": document(bpe(prefixed, [["a", "##b"], ["##b", "##c"], ["ab", "##c"]], unk_token="<unk>",
                                   continuing_subword_prefix="##"), pre_tokenizer=space),
        "Unigram": document({"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
                            pre_tokenizer=METASPACE),
        "Unigram_byte_fallback": document({"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": pieces + [
            [name, -20.0 - b] for name, b in BYTES.items()]}),
        "WordLevel": document({"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}, pre_tokenizer=space),
        "WordPiece": document({"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
                               "max_input_chars_per_word": 8, "vocab": prefixed}, pre_tokenizer=space)}
    for name, post in [
            ("TemplateProcessing", template("<s> $A <x> <s>", "<s> $B:2 <x>:3 $A:1 <s>", {"<s>": 256, "<x>": 257})),
            ("BertProcessing", {"type": "BertProcessing", "sep": ["<x>", 257], "cls": ["<s>", 256]}),
            ("RobertaProcessing", {"type": "RobertaProcessing", "sep": ["<x>", 257], "cls": ["<s>", 256],
                                   "trim_offsets": True, "add_prefix_space": True}),
            ("ByteLevel", plain("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)),
            ("Sequence", {"type": "Sequence", "processors": [
                plain("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                template("<s> $A", "<s> $A <s>:1 $B:1", {"<s>": 256})]})]:
        rows[f"post_{name}"] = document(WORDS, post_processor=post, added_tokens=[added(256, "<s>"),
            added(257, "<x>")])
    tokens = [added(300 + flags, name, single_word=bool(flags & 1), lstrip=bool(flags & 2), rstrip=bool(flags & 4),
                    normalized=bool(flags & 8), special=bool(flags & 16))
              for flags, name in enumerate(ADDED)]
    holes = {f"hole{i}": 256 + i for i in range(44)}
    rows["added_tokens"] = document(
        bpe(BYTES | holes, [], byte_fallback=True), added_tokens=tokens, pre_tokenizer=METASPACE | {"split": False},
        normalizer=sequence("n", plain("Prepend", prepend=BLANK), plain("Lowercase"), replace(" ", BLANK)))
    return {name if "_" in name and name.startswith("post") or name == "added_tokens" else f"model_{name}": value
            for name, value in rows.items()}


ADDED = [f"<t{flags}>" if flags % 2 else f"Tok{flags}" for flags in range(32)]


def components():
    return normalizer_rows() | pre_tokenizer_rows() | decoder_rows() | model_rows()


def short(rng):
    pool = ["a", "b", "c", "ab", "abc", "the", " ", "  ", "\n", "12", ".", "-", "é", "e\u0301", "中",
        "カ", "ー", "½", "A", "ab12",
            BLANK, "<s>", "<unk>", "\t", "ﬁ", "Привет", "🙂", "\u200b", "\x01", "_", "ée",
                "éé", "ｶﾞ", "e", "…", "\r\n", "ſ"]
    return "".join(rng.choice(pool) for _ in range(rng.randrange(9)))


def with_added(rng):
    glue = ["", "", " ", "  ", "\n", "x", "_", "1", "."]
    return "".join(rng.choice(glue) + rng.choice(ADDED + [name.lower() for name in ADDED]) + rng.choice(glue)
                   for _ in range(rng.randrange(6)))


def component_cases(name, count, seed):
    rng = random.Random(seed)
    return [(with_added if name == "added_tokens" else short)(rng) for _ in range(count)]


def token_lists(count, seed):
    rng = random.Random(seed)
    return [[rng.randrange(len(TOKENS)) for _ in range(rng.randrange(1, 7))] for _ in range(count)]


def write_fixtures(text_path, folder):
    text = open(text_path, encoding="utf-8").read()
    with open(f"{folder}/components.jsonl", "w", encoding="utf-8") as out:
        for name, tree in components().items():
            tokenizer = Tokenizer.from_str(json.dumps(tree))
            row = {"name": name, "tokenizer": tree | {"model": "bytes" if tree["model"] is WORDS else tree["model"]}}
            if name.startswith("decoder"):
                row["cases"] = [[ids, tokenizer.decode(ids, skip_special_tokens=False)] for ids in token_lists(24, 1)]
            elif name.startswith("post"):
                row["cases"] = []
                for first, second in [("ab", "c"), ("", "x"), ("a b", "")]:
                    one, two = tokenizer.encode(first), tokenizer.encode(first, second)
                    row["cases"].append([first, second, one.ids, one.type_ids, two.ids, two.type_ids])
            else:
                row["cases"] = [[case, tokenizer.encode(case).ids] for case in component_cases(name, 14, 1)]
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
    import tokenizer_pipelines
    charsmap_rules = base64.b64encode(charsmap(RULES)).decode()
    made, _ = families(text[:8_000] + text[-40_000:], 600)
    made = {name: tree for name, tree in made.items() if name != "mistral_v01"}  # tinyllama differs only in its
                                                                                 # template
    with open(f"{folder}/families.jsonl", "w", encoding="utf-8") as out, \
            open(f"{folder}/family_cases.jsonl", "w", encoding="utf-8") as rows:
        for tree in made.values():  # the whole nmt_nfkc takes a third of a megabyte
            for part in [tree["normalizer"], *((tree["normalizer"] or {}).get("normalizers", []))]:
                if part and part["type"] == "Precompiled":
                    part["precompiled_charsmap"] = charsmap_rules
        tokenizers = {name: Tokenizer.from_str(json.dumps(tree)) for name, tree in made.items()}
        for name, tree in made.items():
            out.write(json.dumps({"name": name, "tokenizer": tree}, ensure_ascii=False, separators=(",", ":")) + "\n")
        for case in [case[:80] for case in tokenizer_pipelines.cases_of(text, 60, 3)]:
            row = {"text": case}
            for name, tokenizer in tokenizers.items():
                ids = tokenizer.encode(case, add_special_tokens=False).ids
                row[name] = [ids, tokenizer.decode(ids, skip_special_tokens=False)]
            rows.write(json.dumps(row, separators=(",", ":")) + "\n")


def compare_components(program, count=2000, *names):
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, tree in components().items():
            if names and name not in names:
                continue
            path = f"{folder}/{name}.json"
            with open(path, "w", encoding="utf-8") as out:
                json.dump(tree, out, ensure_ascii=False)
            wrong += compare(program, path, component_cases(name, int(count),
                7) + cases_of("a b c " * 50, 300, 8), [])
    print(f"{wrong} differences")
    return wrong


if __name__ == "__main__":
    command, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if command == "fixtures":
        write_fixtures(*arguments)
    elif command == "compare":
        sys.exit(1 if compare_components(*arguments) else 0)
    else:
        sys.exit(__doc__)
