#!/usr/bin/env python3
"""Tokenizers without tokenizer.json against the libraries that wrote them: SentencePiece's .model against
`sentencepiece`, tiktoken's ranks against `tiktoken`, vocab.json with merges.txt against `tokenizers`.

  tokenizer_files.py fixtures TEXT tests/fixtures/text/files
  tokenizer_files.py compare TESSERA TEXT FOLDER [N]
      trains larger ones into FOLDER; N cases each
"""
import base64
import json
import os
import sys
import unicodedata

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenizer_fixtures import QUICK
from tokenizer_pipelines import cases_of, ours, trained


def sentencepiece_models(text, vocab_size, rules=None):
    """name -> (processor, bytes): byte-pair encoding like Llama's, without a prefix like Gemma's, unigram like T5's."""
    llama = dict(byte_fallback=True, character_coverage=0.98, remove_extra_whitespaces=False, split_digits=True)
    made = {"llama": trained(text, "bpe", vocab_size, "identity", add_dummy_prefix=True, **llama),
            "gemma": trained(text, "bpe", vocab_size, "identity", add_dummy_prefix=False, **llama,
                             user_defined_symbols=["<start_of_turn>", "\n\n"])}
    options = {"normalization_rule_tsv": rules} if rules else {}
    made["t5"] = trained(text, "unigram", vocab_size, "nmt_nfkc", character_coverage=0.98, pad_id=0, eos_id=1, unk_id=2,
                         bos_id=-1, **options)
    return made


def byte_level(text, vocab_size, pattern):
    """Ranks of bytes, and the same tokenizer in `tokenizers`."""
    from tokenizers import Regex
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True) if pattern is None else \
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(text.split("\n"), trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    byte_of = {c: b for b, c in enumerate(alphabet())}
    return {bytes(byte_of[c] for c in token): i for token, i in tokenizer.get_vocab().items()}, tokenizer


def alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def write_tiktoken(ranks, path):
    with open(path, "w") as out:
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            out.write(f"{base64.b64encode(token).decode()} {rank}\n")


def all_kinds(text, vocab_size, folder, rules=None):
    """[(name, path to load, function text -> ids)], with the files written into the folder."""
    made = []
    for name, (model, blob) in sentencepiece_models(text, vocab_size, rules).items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/tokenizer.model", "wb") as out:
            out.write(blob)
        with open(f"{folder}/{name}/tokenizer_config.json", "w") as out:
            json.dump({"add_bos_token": False}, out)
        made.append((name, f"{folder}/{name}", model.encode))
    ranks, _ = byte_level(text, vocab_size, QUICK)
    os.makedirs(f"{folder}/tiktoken", exist_ok=True)
    write_tiktoken(ranks, f"{folder}/tiktoken/tokenizer.model")
    encoding = tiktoken.Encoding("test", pat_str=QUICK, mergeable_ranks=ranks, special_tokens={})
    made.append(("tiktoken", f"{folder}/tiktoken", encoding.encode_ordinary))
    _, tokenizer = byte_level(text, vocab_size, None)
    os.makedirs(f"{folder}/merges", exist_ok=True)
    tokenizer.model.save(f"{folder}/merges")
    made.append(("merges", f"{folder}/merges", lambda case: tokenizer.encode(case, add_special_tokens=False).ids))
    return made


def fair(name, case):
    """Whether the libraries should agree on a text: Hugging Face's format, in which models are read, matches control
    tokens in text and applies charsmaps grapheme by grapheme (docs/tokenizers.md)."""
    if any(token in case for token in ("<s>", "</s>", "<unk>", "<pad>", "<0x", "\u2581")):
        return False
    return name != "t5" or not any(unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf", "Cc") for c in case)


def compare(program, text_path, folder, count=20_000):
    text = open(text_path, encoding="utf-8").read()
    wrong = 0
    for name, path, encode in all_kinds(text[:2_000_000], 8000, folder):
        cases = [case for case in cases_of(text, int(count), 20260102) if fair(name, case)]
        theirs = [encode(case) for case in cases]
        found = ours(program, path, "encode", [{"text": case} for case in cases])
        bad = [i for i, (a, b) in enumerate(zip(found, theirs)) if a != b]
        for i in bad[:5]:
            print("  ", repr(cases[i][:120]), "ours", found[i][:40], "theirs", theirs[i][:40])
        print(f"{name}: {len(cases)} texts, {len(bad)} differ", flush=True)
        wrong += len(bad)
    return wrong


def write_fixtures(text_path, folder):
    text = open(text_path, encoding="utf-8").read()
    rules = f"{folder}/rules.tsv"  # the whole nmt_nfkc takes a quarter of a megabyte
    with open(rules, "w") as out:
        out.write("BD\t31 2044 32\nA\t20\n9\t20\n2122\t54 4D\nFB01\t66 69\n")
    with open(f"{folder}/cases.jsonl", "w", encoding="utf-8") as out:
        for name, path, encode in all_kinds(text[:8000] + text[-30_000:], 500, folder, rules):
            cases = [case[:60] for case in cases_of(text, 60, 4) if fair(name, case[:60])]
            out.write(json.dumps({"name": name, "cases": [[case, encode(case)] for case in cases]},
                                 separators=(",", ":")) + "\n")
    os.remove(rules)


if __name__ == "__main__":
    command, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if command == "fixtures":
        write_fixtures(*arguments)
    elif command == "compare":
        sys.exit(1 if compare(*arguments) else 0)
    else:
        sys.exit(__doc__)
