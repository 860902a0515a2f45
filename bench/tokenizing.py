#!/usr/bin/env python3
"""Tokenizing a text on one thread: `tessera tokenizer encode` against Hugging Face `tokenizers`, in CPU-seconds.

  bench/tokenizing.py build/tessera TEXT TOKENIZER_JSON ...

Both read documents of about 10 kB (a .jsonl file), as in training data; the time of reading the tokenizer is
subtracted, measured by a run on no documents. Needs the package `tokenizers`.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time


def documents_of(path, size=10_000):
    lines, documents, have = [], [], 0
    for line in open(path, encoding="utf-8"):
        lines.append(line)
        have += len(line)
        if have >= size:
            documents.append("".join(lines))
            lines, have = [], 0
    return documents + (["".join(lines)] if lines else [])


def seconds_of(program, tokenizer, path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "tokenizer", "encode", "--tokenizer_name", tokenizer, "--file", path], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(program, tokenizer, documents):
    with tempfile.TemporaryDirectory() as folder:
        full, empty = f"{folder}/full.jsonl", f"{folder}/empty.jsonl"
        with open(full, "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text}) + "\n" for text in documents)
        with open(empty, "w", encoding="utf-8") as out:
            out.write('{"text": "a"}\n')
        return min(seconds_of(program, tokenizer, full) for _ in range(3)) - min(
            seconds_of(program, tokenizer, empty) for _ in range(3))


def theirs(path, documents):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    best, total = None, 0
    for _ in range(2):
        tokenizer = Tokenizer.from_file(path)  # a new tokenizer has an empty cache
        begin = time.process_time()
        total = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in documents)
        best = min(best or 1e9, time.process_time() - begin)
    return best, total


def main(program, text, *tokenizers):
    documents = documents_of(text)
    size = sum(len(document.encode()) for document in documents)
    print(f"{size / 1e6:.1f} MB in {len(documents)} documents, one thread, CPU-seconds")
    for path in tokenizers:
        mine = ours(program, path, documents)
        other, count = theirs(path, documents)
        print(f"{os.path.basename(path):24} {count} tokens: ours {mine:.2f} s ({size / 1e6 / mine:.1f} MB/s), theirs "
              f"{other:.2f} s ({size / 1e6 / other:.1f} MB/s): {other / mine:.1f}x", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
