#!/usr/bin/env python3
"""Fixtures and comparisons of the WordPiece tests that need Hugging Face `tokenizers` (its version is in the fixtures).

  wordpiece_fixtures.py fixtures TEXT tests/fixtures/text/wordpiece
      small tokenizers, cases and their ids
  wordpiece_fixtures.py compare TESSERA TEXT TOKENIZER_JSON [N]
      ids of N cases, ours (the program) against theirs

TEXT is natural English text, e.g. the King James Bible of Debian's bible-kjv-text. Not needed by `make test`.
"""
import json
import random
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizer_fixtures import fuzzed, natural, normalizing

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def trained(text, vocab_size, normalizer, prefix="##", longest=100):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=longest,
                                           continuing_subword_prefix=prefix))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=prefix)
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=SPECIALS, show_progress=False,
                                        continuing_subword_prefix=prefix)
    extra = ("caf\u00e9 na\u00efve \u4e2d\u6587 \u65e5\u672c\u8a9e stra\u00dfe \u0130stanbul \u00c9t\u00e9 "
             "don't !? 1,234.5 \u0939\u093f\u0928\u094d\u0926\u0940 ") * 30
    tokenizer.train_from_iterator([text, extra], trainer)
    vocab = tokenizer.get_vocab()
    # the trainer keeps its own copy of the model, so these settings are set again
    tokenizer.model = models.WordPiece(vocab=vocab, unk_token="[UNK]", max_input_chars_per_word=longest,
                                       continuing_subword_prefix=prefix)
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def small_tokenizers(text):
    template = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made = {}
    made["uncased"] = trained(text, 600, normalizers.BertNormalizer())
    made["uncased"].post_processor = template
    made["cased"] = trained(text, 500, normalizers.BertNormalizer(lowercase=False))
    made["cased"].post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made["options"] = trained(text, 400, normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False,
                                                                    strip_accents=False, lowercase=True),
                              prefix="@", longest=7)
    made["options"].decoder = decoders.WordPiece(prefix="@", cleanup=False)
    made["options"].add_tokens([AddedToken("New York", normalized=True),
                                AddedToken("<x>", lstrip=True, rstrip=True, normalized=False),
                                AddedToken("word", single_word=True, normalized=True)])
    made["accents"] = trained(text, 300, normalizers.BertNormalizer(strip_accents=True, lowercase=False))
    made["sequence"] = trained(text, 300, normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase(),
                                                                normalizers.BertNormalizer(lowercase=False)]))
    return made


EXTRA = ["", " ", "[CLS]", "a[MASK]b", "[mask]", " [SEP]  [PAD] x", "Don't do not, won't! \"quoted\" (x) it's ' s",
         "NEW YORK New York new york", "word words wordy Word", "  <x>  ", "x" * 99, "x" * 100, "x" * 101,
         "\u4e2d" * 5 + "a", "\u00c9" * 120, "\u0130", "A\u0308\u0323", "\u1e9b\u0323",
         "\u0000\u0001\t\n\r\u00ad\u200b\u200d\ufeff\ufffd\u2028\u3000", "\u00df\u1e9e\u03a3\u03c2\u03a3\u03a4",
         "$+<=>^`|~ \u20ac \u2116 \u00b6 \u00bf\u2010\u2014", "\u1100\u1161\u11a8 \uac01",
         "e.g. U.S.A. 3.14 #tag @you a_b c/d", "\U0001f642\U0001f469\u200d\U0001f467"]


def bertish(rng):
    pool = ["A", "B", "\u0130", "\u00c9", "\u1e9e", "\u03a3", "\u0401", "\u10a0", "\ua64a", "\U00010400", "\U0001e900",
            "\u4e00", "\u3400", "\U00020000", "\U0002b8ff", "\uf900", "\u30a2", "\uac01", "\u0301", "\u093f", "\u0940",
            "\u0488", "\u20dd", "\u1cf7", "-", "\u2014", "\u3001", "\uff01", "$", "\u20ac", "^", "\u037e", "\u00a0",
            "\u2009", "\u200b", "\u2060", "\ue000", "\U000e0001", "\u0378", " ", "the", "##", "##e", "[", "]", "[UNK]",
            "[MASK]", "ing", "n't", " '", ".", "1"]
    return "".join(rng.choice(pool) for _ in range(rng.randrange(16)))


def cases_of(text, count, seed):
    rng = random.Random(seed)
    makers = [lambda: natural(rng, text), lambda: fuzzed(rng), lambda: bertish(rng), lambda: normalizing(rng),
              lambda: bertish(rng)]
    return EXTRA + [makers[i % 5]() for i in range(count)]


def write_fixtures(text_path, folder):
    text = open(text_path, encoding="utf-8").read()
    made = small_tokenizers(text[:60_000])
    for name, tokenizer in made.items():
        tokenizer.save(f"{folder}/{name}.json", pretty=False)
    vocab = made["uncased"].get_vocab()
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as out:
        out.writelines(token + "\n" for token in sorted(vocab, key=vocab.get))
    cases = [case[:160] for case in cases_of(text, 160, 7)]
    rng = random.Random(8)
    with open(f"{folder}/cases.jsonl", "w", encoding="utf-8") as out:
        for case in cases:
            row = {"text": case, "pair": rng.choice(cases)}
            for name, tokenizer in made.items():
                row[name] = ids = tokenizer.encode(case, add_special_tokens=False).ids
                if name in ("uncased", "options"):
                    row[name + "_decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
            both = made["uncased"].encode(case, row["pair"])
            row |= {"pair_ids": both.ids, "pair_types": both.type_ids}
            out.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def compare(program, text_path, tokenizer_path, count):
    """With the special tokens of the post-processor; the tokenizer's own truncation and padding are switched off."""
    text = open(text_path, encoding="utf-8").read()
    tokenizer = Tokenizer.from_file(tokenizer_path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cases = cases_of(text, count, 20260102) + [text]
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


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "fixtures":
        write_fixtures(*arguments)
    elif command == "compare":
        sys.exit(1 if compare(*arguments[:3], int(arguments[3]) if len(arguments) > 3 else 20_000) else 0)
    else:
        sys.exit(__doc__)
