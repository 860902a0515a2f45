#!/usr/bin/env python3
"""Ids and scored masks of conversations from Python's transformers, for tests/data/chat_examples_test.cpp.

    chat_examples.py          writes tests/fixtures/chat_examples/

Needs transformers and jinja2 (the versions that made the fixture are in expected.json). The tokenizer is the small
Qwen2 one of tests/fixtures/text with the chat tokens of other families added.
"""

import json
import os
import pathlib

import jinja2
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/fixtures/chat_examples"
TEMPLATES = ROOT / "tests/fixtures/chat_templates/trl"

MARKED = [
    name + "_training" for name in ("qwen2_5", "qwen3", "llama3", "gemma", "phi3_5", "deepseekv3")
]  # with {% generation %}
PLAIN = ["qwen2_5", "llama3", "gemma"]
MARKS = [
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>", "<start_of_turn>",
    "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>", "<tool_call>",
    "</tool_call>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
]

USER = [
    {"role": "user", "content": "Who wrote Hamlet?"},
    {"role": "user", "content": "  And when,\nin which year? Zürich 中文 🙂"},
]
SAID = [
    {"role": "assistant", "content": "William Shakespeare."},
    {"role": "assistant", "content": "About 1600;\n\n1. it is not known."},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
FUNCTION = {"name": "look_up", "arguments": {"word": "year"}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": FUNCTION}]}
LINES = {
    "one": {"messages": [USER[0], SAID[0]]},
    "turns": {"messages": [USER[0], SAID[0], USER[1], SAID[1]]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER[0], SAID[0], USER[1], SAID[1]]},
    "tools": {"messages": [USER[0], CALL, {"role": "tool", "content": "12 months"}, SAID[0]], "tools": [TOOL]},
}


def make_tokenizer():
    tree = json.loads((ROOT / "tests/fixtures/text/family_qwen2.json").read_text())
    first = max([t["id"] for t in tree["added_tokens"]] + list(tree["model"]["vocab"].values())) + 1
    for i, mark in enumerate(MARKS):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        special = "think" not in mark and "tool" not in mark
        tree["added_tokens"].append({"id": first + i, "content": mark, **flags, "special": special})
    OUT.mkdir(exist_ok=True)
    (OUT / "tokenizer.json").write_text(json.dumps(tree, ensure_ascii=False) + "\n")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"}
    (OUT / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(OUT / "tokenizer.json"), bos_token=config["bos_token"], eos_token=config["eos_token"]
    )


def case(tokenizer, name, line_name):
    line = LINES[line_name]
    text = (TEMPLATES / f"{name}.jinja").read_text()
    marked = name in MARKED
    try:
        made = tokenizer.apply_chat_template(
            line["messages"], tools=line.get("tools"), chat_template=text, tokenize=True, return_dict=True,
            return_assistant_tokens_mask=marked,
        )
    except (jinja2.exceptions.TemplateError, TypeError):
        return None  # a template without tools or system messages
    ids = list(made["input_ids"])
    mask = "".join(map(str, made["assistant_masks"])) if marked else None
    return {"template": f"{name}.jinja", "line": line_name, "ids": ids, "mask": mask}


def main():
    os.environ["TZ"] = "UTC"
    tokenizer = make_tokenizer()
    cases = [case(tokenizer, name, line) for name in MARKED + PLAIN for line in LINES]
    made = {
        "transformers": transformers.__version__,
        "jinja2": jinja2.__version__,
        "lines": LINES,
        "cases": [one for one in cases if one is not None],
    }
    text = json.dumps(made, ensure_ascii=False).replace('{"template"', '\n{"template"')
    (OUT / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
