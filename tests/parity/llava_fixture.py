#!/usr/bin/env python3
"""Ids and labels of conversations from LLaVA's own code, for tests/data/llava_test.cpp.

    pip install numpy "transformers==4.46.3" sentencepiece protobuf
    python3 tests/parity/llava_fixture.py PATH_OF_A_LLAVA_CHECKOUT

The functions preprocess_* of llava/train/train.py, conversation.py and tokenizer_image_token are extracted from the
checkout and run with numpy in place of torch; an image is one id, -200. The tokenizer is
tests/fixtures/text/files/llama as transformers' LlamaTokenizer, legacy. Writes tests/fixtures/llava/{records.json,
expected.jsonl}: a line for each template and record, null if LLaVA ignores the whole record.
"""
import ast, copy, dataclasses, json, os, sys, types
import numpy as np
from transformers import LlamaTokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "fixtures", "llava")


class Tensor(np.ndarray):
    def clone(self):
        return self.copy()

    def ne(self, value):
        return self != value


def tensor(values, dtype=None):
    return np.asarray(values, dtype=np.int64).view(Tensor)


def take(path, names, scope):
    tree = ast.parse(open(path).read())
    tree.body = [node for node in tree.body
                 if getattr(node, "name", None) in names or isinstance(node, ast.Assign) and
                 getattr(node.targets[0], "id", None) in names]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    exec(compile(tree, path, "exec"), scope)


RECORDS = [
    {"id": "0", "image": "a.png", "conversations": [
        {"from": "human", "value": "<image>\nwhat is it ?"}, {"from": "gpt", "value": "a cat ."}]},
    {"id": "1", "image": "a.png", "conversations": [
        {"from": "human", "value": "what is it ?\n<image>"}, {"from": "gpt", "value": "a cat"},
        {"from": "human", "value": "and where ?"}, {"from": "gpt", "value": "on the mat , I think"},
        {"from": "human", "value": "good"}, {"from": "gpt", "value": "yes"}]},
    {"id": "2", "conversations": [
        {"from": "human", "value": "hello there"}, {"from": "gpt", "value": "hello"},
        {"from": "human", "value": "bye  now "}, {"from": "gpt", "value": " bye"}]},
    {"id": "3", "image": "b.png", "conversations": [
        {"from": "gpt", "value": "first"}, {"from": "human", "value": "<image> look"},
        {"from": "gpt", "value": "seen"}]},
    {"id": "4", "image": "b.png", "conversations": [
        {"from": "human", "value": "say <image>"}, {"from": "gpt", "value": "x ASSISTANT: y [/INST] z"}]},
    {"id": "5", "image": "b.png", "conversations": [{"from": "human", "value": "<image>"}]},
    {"id": "6", "image": "b.png", "conversations": [
        {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "one\ntwo"}]},
]


def main():
    llava = os.path.join(sys.argv[1], "llava")
    torch = types.SimpleNamespace(stack=lambda list, dim: np.stack(list).view(Tensor), tensor=tensor, long=None)
    talk = {"dataclasses": dataclasses, "List": list, "__name__": "talk"}
    source = open(os.path.join(llava, "conversation.py")).read()
    source = source.replace("from PIL import Image\n", "")
    module = types.ModuleType("conversation")
    sys.modules["conversation"] = module
    exec(compile(source, "conversation.py", "exec"), module.__dict__)
    scope = {"torch": torch, "copy": copy, "conversation_lib": module, "IGNORE_INDEX": -100, "IMAGE_TOKEN_INDEX": -200,
             "DEFAULT_IMAGE_TOKEN": "<image>", "DEFAULT_IM_START_TOKEN": "", "DEFAULT_IM_END_TOKEN": "",
             "IS_TOKENIZER_GREATER_THAN_0_14": True}
    take(os.path.join(llava, "mm_utils.py"), {"tokenizer_image_token"}, scope)
    take(os.path.join(llava, "train", "train.py"),
         {"preprocess_v1", "preprocess_llama_2", "preprocess_plain", "preprocess_multimodal"}, scope)
    tokenizer = LlamaTokenizer(os.path.join(ROOT, "fixtures", "text", "files", "llama", "tokenizer.model"), legacy=True)
    tokenizer.pad_token = tokenizer.unk_token
    tokenizer.model_max_length = 2048
    arguments = types.SimpleNamespace(is_multimodal=True, mm_use_im_start_end=False)
    lines = []
    for version in ("v1", "llava_v1", "v1_mmtag", "llava_llama_2", "mistral_instruct", "plain"):
        module.default_conversation = module.conv_templates[version]
        run = scope["preprocess_plain" if version == "plain" else
                    "preprocess_v1" if version in ("v1", "llava_v1", "v1_mmtag") else "preprocess_llama_2"]
        for record in RECORDS:
            if version == "plain" and (len(record["conversations"]) != 2 or "image" not in record):
                continue
            sources = copy.deepcopy([record["conversations"]])
            if "image" in record:
                sources = scope["preprocess_multimodal"](sources, arguments)
            # has_image also works for text-only records: text without an image is tokenized in one piece.
            made = run(sources, tokenizer) if version == "plain" else run(sources, tokenizer, has_image=True)
            ids, labels = ([int(x) for x in made[key][0]] for key in ("input_ids", "labels"))
            ignored = all(label == -100 for label in labels)
            lines.append(json.dumps({"version": version, "id": record["id"], "ids": None if ignored else ids,
                                     "labels": None if ignored else labels}))
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "records.json"), "w") as file:
        json.dump(RECORDS, file, indent=1)
        file.write("\n")
    with open(os.path.join(OUT, "expected.jsonl"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
