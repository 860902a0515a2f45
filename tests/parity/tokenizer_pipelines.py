#!/usr/bin/env python3
"""SentencePiece-like tokenizers and tokenizers of every component, compared with Hugging Face `tokenizers` and
`sentencepiece`.

  tokenizer_pipelines.py fixtures TEXT tests/fixtures/text/pipeline
      small tokenizers with the settings of common models, and of each component; cases, ids, texts
  tokenizer_pipelines.py compare TESSERA TEXT FOLDER [N] [NAME ...]
      trains larger ones into FOLDER; ids and decoded texts of N cases each, ours (the program) against theirs

TEXT: natural text in many languages, e.g. the Bible and the messages of Django's .po files. The sources of the settings
are given next to them. Not needed by `make test`.
"""
import base64
import io
import json
import random
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import Tokenizer

from tokenizer_fixtures import DEEP, SPACES, fuzzed, normalizing
from characters import charsmap_of_model

BLANK = "\u2581"


def trained(text, kind, vocab_size, rule, **options):
    """A SentencePiece model: its processor and its bytes."""
    model = io.BytesIO()
    lines = [line for line in text.split("\n") if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=vocab_size,
        normalization_rule_name=rule, minloglevel=2, hard_vocab_limit=False, num_threads=1, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), model.getvalue()


def pieces_of(model):
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]


def merges_of(pieces):
    """Pairs ordered by the score of the merged piece, like transformers' converter."""
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        merges += [(score, pair) for pair in sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    return [list(pair) for _, pair in sorted(merges, key=lambda merge: merge[0], reverse=True)]


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | flags


def sequence(kind, *steps):
    return {"type": "Sequence", {"n": "normalizers", "p": "pretokenizers", "d": "decoders"}[kind]: list(steps)}


def replace(old, new, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": old}, "content": new}


def template(single, pair, ids):
    def parts(text):
        return [{"Sequence": {"id": part[1], "type_id": int(part[3:] or 0)}} if part[0] == "$"
                else {"SpecialToken": {"id": part.split(":")[0], "type_id": int((part.split(":") + ["0"])[1])}}
                for part in text.split()]
    return {"type": "TemplateProcessing", "single": parts(single), "pair": parts(pair),
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in ids.items()}}


def document(model, **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None} | parts | {"model": model}


def bpe(vocab, merges, **options):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocab, "merges": merges} | options


FALLBACK = [replace(BLANK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
LEGACY = sequence("n", {"type": "Prepend", "prepend": BLANK}, replace(" ", BLANK))
METASPACE = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}


def bpe_families(text, vocab_size, coverage):
    """Tokenizers modelled on meta-llama/Llama-2-7b-hf, TinyLlama, Mistral-7B v0.1 and v0.3, gemma-2b, Phi-3-mini-4k,
    each over one SentencePiece BPE model."""
    spm, blob = trained(text, "bpe", vocab_size, "identity", byte_fallback=True, character_coverage=coverage,
                        add_dummy_prefix=True, remove_extra_whitespaces=False, split_digits=True,
                        user_defined_symbols=[BLANK * n for n in range(2, 9)])
    pieces = pieces_of(spm)
    vocab, merges = {piece: i for i, (piece, _) in enumerate(pieces)}, merges_of(pieces)
    model = bpe(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    specials = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    starts = template("<s> $A", "<s> $A <s>:1 $B:1", {"<s>": 1})
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    n = len(vocab)
    made = {
        "llama2": document(model, added_tokens=[{**token, "normalized": True} for token in specials],
                           normalizer=LEGACY, post_processor=starts, decoder=sequence("d", *FALLBACK, strip)),
        "tinyllama": document(model, added_tokens=specials, normalizer=LEGACY, post_processor=starts,
                              decoder=sequence("d", *FALLBACK, strip)),
        "mistral_v01": document(model, added_tokens=specials, normalizer=LEGACY,
                                post_processor=template("<s> $A", "<s> $A <s> $B", {"<s>": 1}),
                                decoder=sequence("d", *FALLBACK, strip)),
        "mistral_v03": document(
            model, added_tokens=specials + [added(n + i, f"[{name}]") for i, name in enumerate(
                ("INST", "/INST", "TOOL_CALLS", "AVAILABLE_TOOLS", "/AVAILABLE_TOOLS"))],
            pre_tokenizer=METASPACE | {"prepend_scheme": "first", "split": False}, post_processor=starts,
            decoder=sequence("d", *FALLBACK, strip)),
        "phi3": document(
            model, added_tokens=specials[:2] + [added(2, "</s>", rstrip=True)] + [
                added(n + i, f"<|{name}|>", rstrip=name != "endoftext") for i, name in enumerate(
                    ("endoftext", "assistant", "placeholder1", "system", "end", "user"))],
            normalizer=LEGACY, post_processor=template("$A", "$A $B:1", {}),
            decoder=sequence("d", *FALLBACK, strip)),
    }
    gemma, _ = trained(text, "bpe", vocab_size, "identity", byte_fallback=True, character_coverage=coverage,
                       add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True, unk_id=3, pad_id=0,
                       eos_id=1, bos_id=2,
                       user_defined_symbols=[BLANK * k for k in range(2, 9)] + ["\n" * k for k in range(1, 6)]
                       + ["\t", "<start_of_turn>"])
    pieces = pieces_of(gemma)
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    plain = [piece for piece in ids if set(piece) <= {BLANK} and len(piece) > 1 or set(piece) <= {"\n"}]
    made["gemma"] = document(
        bpe(ids, merges_of(pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        added_tokens=sorted([added(ids[name], name) for name in ("<pad>", "</s>", "<s>", "<unk>", "<start_of_turn>")]
                            + [added(ids[name], name, special=False) for name in plain], key=lambda t: t["id"]),
        normalizer=replace(" ", BLANK),
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                       "invert": False},
        post_processor=template("<s> $A", "<s> $A <s>:1 $B:1", {"<s>": ids["<s>"]}),
        decoder=sequence("d", *FALLBACK))
    return made, {"bpe": blob}


def unigram_families(text, vocab_size, coverage):
    """Modelled on t5-small, t5-small as current transformers converts it, xlm-roberta-base and albert-base-v2."""
    spm, blob = trained(text, "unigram", vocab_size, "nmt_nfkc", character_coverage=coverage, pad_id=0, eos_id=1,
                        unk_id=2, bos_id=-1)
    pieces = [[piece, score] for piece, score in pieces_of(spm)]
    charsmap = {"type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(charsmap_of_model(blob)).decode()}
    words = sequence("p", {"type": "WhitespaceSplit"}, METASPACE)
    extra = [added(len(pieces) + i, f"<extra_id_{99 - i}>") for i in range(100)]
    with_extra = pieces + [[token["content"], 0.0] for token in extra]
    specials = [added(0, "<pad>"), added(1, "</s>"), added(2, "<unk>")]
    ends = template("$A </s>", "$A </s> $B </s>", {"</s>": 1})
    made = {
        "t5": document({"type": "Unigram", "unk_id": 2, "vocab": with_extra, "byte_fallback": False},
                       added_tokens=specials + extra, normalizer=charsmap, pre_tokenizer=words, post_processor=ends,
                       decoder=METASPACE),
        "t5_now": document(
            {"type": "Unigram", "unk_id": 2, "vocab": with_extra, "byte_fallback": False},
            added_tokens=specials + extra, post_processor=ends, pre_tokenizer=METASPACE, decoder=METASPACE,
            normalizer=sequence("n", charsmap, {"type": "Strip", "strip_left": False, "strip_right": True},
                                replace(" {2,}", BLANK, regex=True))),
    }
    shifted = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]] + pieces[3:] + [["<mask>", 0.0]]
    last = len(shifted) - 1
    made["xlmr"] = document(
        {"type": "Unigram", "unk_id": 3, "vocab": shifted, "byte_fallback": False},
        added_tokens=[added(0, "<s>"), added(1, "<pad>"), added(2, "</s>"), added(3, "<unk>"),
                      added(last, "<mask>", lstrip=True)],
        normalizer=charsmap, pre_tokenizer=words, decoder=METASPACE,
        post_processor=template("<s> $A </s>", "<s> $A </s> </s> $B </s>", {"<s>": 0, "</s>": 2}))
    made["albert"] = document(
        {"type": "Unigram", "unk_id": 3, "vocab": shifted, "byte_fallback": False},
        added_tokens=[added(0, "<s>"), added(2, "</s>"), added(3, "<unk>"), added(last, "<mask>", lstrip=True)],
        normalizer=sequence("n", replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                            {"type": "Lowercase"}, charsmap),
        pre_tokenizer=words, decoder=METASPACE,
        post_processor=template("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", {"<s>": 0, "</s>": 2}))
    return made, {"unigram": blob}


def byte_level_families(text, vocab_size, coverage):
    """Modelled on deepseek-ai/DeepSeek-V3 and EleutherAI/gpt-neox-20b."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    made = {}
    for name, normalizer, cutter in [
            ("deepseek_v3", normalizers.Sequence([]), pre_tokenizers.Sequence([
                split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEP),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])),
            ("gpt_neox", normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))]:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, cutter, decoders.ByteLevel()
        names = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"] if name == "deepseek_v3" else \
            ["<|endoftext|>", "<|padding|>"]
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=names, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(text.split("\n"), trainer)
        if name == "deepseek_v3":
            tokenizer.post_processor = processors.Sequence([
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single=f"{names[0]} $A", pair=f"{names[0]} $A {names[0]}:1 $B:1",
                                              special_tokens=[(names[0], 0)])])
            tokenizer.add_tokens([AddedToken(f"<｜place▁holder▁no▁{i}｜>",
                normalized=True) for i in range(5)])
            tokenizer.add_tokens([AddedToken("<｜User｜>", normalized=False), AddedToken("<think>",
                normalized=True)])
        else:
            tokenizer.add_tokens([AddedToken(" " * k, normalized=True) for k in range(24, 1, -1)])
        made[name] = json.loads(tokenizer.to_str())
    return made, {}


def families(text, vocab_size, coverage=0.98):
    made, models = {}, {}
    for make in (bpe_families, unigram_families, byte_level_families):
        documents, blobs = make(text, vocab_size, coverage)
        made |= documents
        models |= blobs
    return made, models


SPECIALS = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "[INST]", "[/INST]", "<|user|>", "<|end|>", "<|assistant|>\n",
            "<extra_id_0>", "<extra_id_12>", "<start_of_turn>", "<|endoftext|>", "<｜User｜>",
            "<think>", "<｜end▁of▁sentence｜>",
            "<0x0A>", "<0xE2>", "<s", "s>"]
SCRIPTS = ["Ελληνικά", "русский язык", "العربية لغة",
    "हिन्दी भाषा", "ไทย", "日本語の文", "한국어", "中文字符",
        "ქართული", "አማርኛ",
           "עברית", "বাংলা", "தமிழ்", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
           "ｆｕｌｌｗｉｄｔｈ", "ﬁﬂ", "①②", "½", "™", "㎏", "ﷺ", "🇩🇪",
               "👩‍👩‍👧‍👦", "👍🏽", "e\u0301", "a\u0308\u0323",
           "\u0915\u094d\u0937", "\u0e33", "İ", "ß", "ς", "Ǆ", "\u1e9e", "\u200d", "\u200b",
           "\ufeff", "\u00ad", "\u202e"]


def spaced(rng):
    """Runs of all kinds of blanks, tabs, line feeds and visible blanks between words."""
    glue = [" ", "  ", "   ", " " * 9, "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", BLANK, BLANK * 3]
    words = ["a", "the", "word", "12", "3.14", "x", ".", ",", "don't", "``q''", "é", "中"]
    return "".join(rng.choice(glue if rng.random() < 0.5 else words) for _ in range(rng.randrange(16)))


def special(rng):
    glue = ["", "", " ", "  ", "\n", "x", "the ", " and", BLANK]
    return "".join(rng.choice(glue) + rng.choice(SPECIALS) + rng.choice(glue) for _ in range(rng.randrange(7)))


def scripts(rng):
    return "".join(rng.choice(SCRIPTS + [" ", "", "\n", "1", ", "]) for _ in range(rng.randrange(12)))


def marked(rng):
    """Characters that normalization changes or drops, with combining marks after and prepended marks before them."""
    pool = ["a", "½", "™", "ｱ", "ﾞ", "\r", "\n", "\t", "\x01", "\x7f", "\u0600", "\u0301",
        "\u20dd", "\u200d", "☺", "\u00ad",
            "\u0e33", "\u0bc6", "\u1100", "\u1161", "\u11a8", "각", "ǆ", "\u2028", " ", "\U000e0041",
            "\U0001d15e", "\u0345", "ſ"]
    return "".join(rng.choice(pool) for _ in range(rng.randrange(10)))


def natural(rng, text):
    begin = rng.randrange(len(text))
    return text[begin:begin + rng.randrange(1, 300)]


def cases_of(text, count, seed):
    rng = random.Random(seed)
    makers = [lambda r: natural(r, text), lambda r: natural(r, text), spaced, special, scripts, marked, normalizing,
              fuzzed]
    return ["", " ", BLANK] + [makers[i % len(makers)](rng) for i in range(count - 3)]


def ours(program, path, command, rows):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
        out.flush()
        flags = ["--add_special_tokens"] if command == "encode" else []
        done = subprocess.run([program, "tokenizer", command, "--tokenizer_name", path, "--file", out.name, *flags],
                              capture_output=True, check=True)
    answer = done.stdout.decode("utf-8").split("\n")[:-1]
    assert len(answer) == len(rows), (len(answer), len(rows), done.stderr[-500:])
    return [json.loads(line) for line in answer]


def compare(program, path, cases, whole):
    """Compares the ids of texts, and the decoded texts of ids."""
    tokenizer = Tokenizer.from_file(path)
    rng = random.Random(5)
    theirs = [tokenizer.encode(case).ids for case in cases + whole]
    found = ours(program, path, "encode", [{"text": case} for case in cases + whole])
    wrong = [i for i, (a, b) in enumerate(zip(found, theirs)) if a != b]
    for i in wrong[:5]:
        print("  encode", repr((cases + whole)[i][:120]), "ours", found[i][:40], "theirs", theirs[i][:40])
    # in addition to encoded texts, random lists of ids: truncated characters, special tokens anywhere
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    lists = theirs + [[rng.randrange(vocabulary) for _ in range(rng.randrange(12))] for _ in range(len(cases) // 4)]
    lists = [ids for ids in lists if all(tokenizer.id_to_token(i) is not None for i in ids)]
    texts = [tokenizer.decode(ids, skip_special_tokens=False) if ids else "" for ids in lists]
    decoded = ours(program, path, "decode", lists)
    bad = [i for i, (a, b) in enumerate(zip(decoded, texts)) if a != b]
    for i in bad[:5]:
        print("  decode", lists[i][:40], "ours", repr(decoded[i][:120]), "theirs", repr(texts[i][:120]))
    print(f"{path}: {len(theirs)} texts, {len(wrong)} differ in ids; {len(lists)} lists of ids, {len(bad)} differ as "
          f"text (tokenizers {tokenizers.__version__})", flush=True)
    return len(wrong) + len(bad)


def compare_families(program, text_path, folder, count=20_000, *names):
    text = open(text_path, encoding="utf-8").read()
    made, blobs = families(text[:2_000_000], 8000)
    for name, blob in blobs.items():
        with open(f"{folder}/{name}.model", "wb") as out:
            out.write(blob)
    wrong = 0
    for name, tree in made.items():
        if names and name not in names:
            continue
        path = f"{folder}/{name}.json"
        with open(path, "w", encoding="utf-8") as out:
            json.dump(tree, out, ensure_ascii=False)
        wrong += compare(program, path, cases_of(text, int(count), 20260101), [text[:300_000]])
    return wrong


if __name__ == "__main__":
    command, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if command == "compare":
        sys.exit(1 if compare_families(*arguments) else 0)
    sys.exit(__doc__)
