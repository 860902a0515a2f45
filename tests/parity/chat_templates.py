#!/usr/bin/env python3
"""Conversations rendered by Python's transformers with real chat templates.

    chat_templates.py texts|hashes OUT.json TEMPLATE.jinja ...       for tests/text/chat_template_parity_test.cpp

Needs transformers and jinja2 (5.23.0 and 3.1.6 made the fixtures, which contain hashes). For templates whose licence
does not allow a copy here, or to see the full texts, compare with `TESSERA_CHAT_CASES=OUT.json text_tests`.
"""

import argparse
import json
import logging
import os
import time

os.environ["TZ"] = "UTC"
time.tzset()

from tokenizers import Tokenizer, models  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

NOW = 1763900000  # result of strftime_now, in UTC

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.\nIn words.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["place"],
        },
        "return": {"type": "string"},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": 'Looks "things" up',
        "parameters": {"type": "object", "properties": {"query": {"type": "string", "description": "what"}}},
    },
}


def call(name, arguments, number="abcdefgh1"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are brief."}
TURNS = [
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "  Say <b>more</b>, it's \"fine\".\n"},
]
PLACE = {"role": "user", "content": "Weather in Zürich?"}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefgh1", "content": '{"sky": "grau ☁"}'}

CONVERSATIONS = {
    "one question": {"messages": TURNS[:1]},
    "turns": {"messages": TURNS},
    "turns with system": {"messages": [SYSTEM] + TURNS},
    "answered": {"messages": [SYSTEM] + TURNS[:2]},
    "answered twice": {"messages": TURNS + [{"role": "assistant", "content": " More \n"}]},
    "unicode": {
        "messages": [
            {"role": "system", "content": "日本語で。\u00a0é\u200b"},
            {"role": "user", "content": "😀 \\n {{ x }} {% y %} naïve\r\n\ttab"},
            {"role": "assistant", "content": "はい。"},
        ]
    },
    "tools": {"messages": [SYSTEM, PLACE], "tools": [WEATHER, SEARCH]},
    "tool call": {
        "messages": [
            PLACE,
            {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"place": "Zürich", "days": [1]})]},
            RESULT,
        ],
        "tools": [WEATHER],
    },
    "tool call in text": {
        "messages": [
            SYSTEM,
            PLACE,
            {"role": "assistant", "content": None, "tool_calls": [call("get_weather", '{"place": "Zürich"}')]},
            RESULT,
            {"role": "assistant", "content": "Grey."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [WEATHER, SEARCH],
    },
    "tool calls at once": {
        "messages": [
            PLACE,
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    call("get_weather", {"place": "Bern"}),
                    call("search", {"query": "it's 5 > 4", "deep": True, "most": None, "x": 1.5}, "abcdefgh2"),
                ],
            },
            RESULT,
            {"role": "tool", "name": "search", "tool_call_id": "abcdefgh2", "content": "found"},
            {"role": "assistant", "content": "Done."},
        ],
        "tools": [WEATHER, SEARCH],
    },
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Three"}]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        ]
    },
    "thoughts": {
        "messages": [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "<think>\nadd\n</think>\n\n4"},
            {"role": "user", "content": "3+3?"},
            {"role": "assistant", "content": "6", "reasoning_content": "add again"},
        ]
    },
    "documents": {
        "messages": [{"role": "user", "content": "What do they say?"}],
        "documents": [{"title": "A", "text": "one"}, {"title": "B \"c\"", "text": "zwei\nZeilen"}],
    },
    "options": {
        "messages": [SYSTEM, {"role": "user", "content": "Go"}],
        "variables": {"enable_thinking": False, "reasoning_effort": "high", "date_string": "1 Jan 2025"},
    },
    "continued": {
        "messages": [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two, "}],
        "continue_final_message": True,
    },
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def tokenizer_of(source):
    """A tokenizer with only a template and special tokens."""
    vocabulary = {token: i for i, token in enumerate(SPECIAL.values())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=source, **SPECIAL)


def render(tokenizer, source, conversation, prompt):
    given = {name: conversation.get(name) for name in ("messages", "tools", "documents")}
    given["conversation"] = given.pop("messages")
    given.update(conversation.get("variables", {}))
    continued = conversation.get("continue_final_message", False)
    text = tokenizer.apply_chat_template(
        **given, tokenize=False, add_generation_prompt=prompt, continue_final_message=continued
    )
    result = {"text": text}
    if "generation" not in source or continued:
        return result
    chat = [{k: v for k, v in message.items() if v is not None} for message in given["conversation"]]
    _, spans = chat_template_utils.render_jinja_template(
        [chat],
        tools=given["tools"],
        documents=given["documents"],
        chat_template=source,
        return_assistant_tokens_mask=True,
        add_generation_prompt=prompt,
        **SPECIAL,
        **conversation.get("variables", {}),
    )
    sizes = [len(text[:at].encode()) for at in range(len(text) + 1)]
    result["generated"] = [[sizes[begin], sizes[end]] for begin, end in spans[0]]
    return result


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def expect(output, files, hashed):
    templates = []
    for path in files:
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        tokenizer = tokenizer_of(source)
        cases = []
        for name, conversation in CONVERSATIONS.items():
            for prompt in [False] if "continue_final_message" in conversation else [False, True]:
                case = {"conversation": name, "prompt": prompt}
                try:
                    case.update(render(tokenizer, source, conversation, prompt))
                except Exception as error:  # any error in the template, jinja2 or Python counts as a refusal
                    case["refused"] = f"{type(error).__name__}: {error}"[:200]
                if hashed and "text" in case:
                    case["hash"] = fnv1a(case.pop("text"))
                cases.append(case)
        templates.append({"path": os.path.relpath(path, os.path.dirname(os.path.abspath(output))), "cases": cases})
    with open(output, "w", encoding="utf-8") as file:
        everything = {"now": NOW, "special": SPECIAL, "conversations": CONVERSATIONS, "templates": templates}
        json.dump(everything, file, ensure_ascii=False, indent=0)
        file.write("\n")
    refused = sum("refused" in case for template in templates for case in template["cases"])
    total = sum(len(template["cases"]) for template in templates)
    print(f"{len(templates)} templates, {total} cases, {refused} of them refused")


class FixedTime(chat_template_utils.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def main():
    logging.disable(logging.WARNING)
    chat_template_utils.datetime = FixedTime
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["texts", "hashes"])
    parser.add_argument("output")
    parser.add_argument("templates", nargs="+")
    arguments = parser.parse_args()
    expect(arguments.output, arguments.templates, arguments.command == "hashes")


if __name__ == "__main__":
    main()
