#!/usr/bin/env python3
"""Random small templates and their results from jinja2 in the sandbox of transformers.

    jinja_expressions.py OUT.json [--count 4000] [--seed 1]

For tests/text/jinja_parity_test.cpp (TESSERA_JINJA_CASES).

Cases that depend on Python itself are omitted: integers beyond 64 bits, addresses in printed objects.
"""

import argparse
import copy
import json
import logging
import random
import re
import signal

from transformers.utils import chat_template_utils

VARIABLES = {
    "a": 7,
    "b": -3,
    "f": 2.5,
    "g": -0.1,
    "t": True,
    "n": None,
    "s": "Hello, World",
    "u": "naïve Ünï ☃ 😀",
    "w": "  pad\tted \n",
    "e": "",
    "l": [3, 1, 2],
    "m": ["b", "A", "c", "a"],
    "x": [1, "two", None, 4.0, [5], {"k": "v"}],
    "d": {"one": 1, "two": "zwei", "items": [1, 2], "3": None},
    "r": [{"name": "Bo", "age": 3, "tags": ["x"]}, {"name": "al", "age": 1}, {"name": "Cy", "age": 2, "ok": False}],
}
INTEGERS = ["a", "b", "0", "1", "2", "-1", "10", "3", "l[0]", "l|length", "s|length", "t"]
TEXTS = ["s", "u", "w", "e", "'x'", "'a,b,,c'", "\"it's\"", "'%s-%s'", "m[0]", "d.two", "'Hello'", "' '", "'l'", "'ß'"]
LISTS = ["l", "m", "x", "[]", "[1, 2, 3]", "['q', s]", "(1, 'b')", "range(4)|list", "r", "d.items()|list"]
LISTS.append("s.split(' ')")
DICTS = ["d", "{'k': 1, 'z': [2]}", "r[0]", "{}", "dict(a=1, b='c')"]
ATOMS = INTEGERS + TEXTS + LISTS + DICTS + ["f", "g", "n", "none", "true", "missing", "d.nothing", "1.0", "1e3", "0.5"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
TESTS = """defined undefined none string number integer float boolean true false mapping iterable sequence even odd
upper lower callable""".split()
TESTS_WITH = "eq ne lt gt le ge equalto sameas divisibleby in".split()
FILTERS = """upper lower title capitalize trim length list first last string int float abs reverse|list sort join
unique|list tojson default safe escape items|list sum min max count dictsort map('string')|list
select|list reject|list map('upper')|join(',') select('string')|list reject('none')|list
""".split()
FILTERS_WITH = ["default({0})", "default({0}, true)", "join({1})", "replace({1}, {1})", "trim({1})"]
FILTERS_WITH += ["indent({2})", "indent(2, true)", "tojson(indent=2)", "int({2})", "sort(reverse=true)"]
FILTERS_WITH += ["map(attribute='name')|list", "selectattr('age', 'gt', 1)|list", "rejectattr('ok')|list", "attr({1})"]
FILTERS_WITH += ["selectattr('ok', 'defined')|map(attribute='name')|join('/')", "sort(attribute='name')", "format({0})"]
FILTERS_WITH += ["sum(attribute='age')", "max(attribute='age')", "join({1}, attribute='name')", "dictsort(by='value')"]
FILTERS_WITH += ["sort(case_sensitive=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))"]
FILTERS_WITH += ["unique(case_sensitive=true)|list"]
METHODS = """upper() lower() title() capitalize() strip() lstrip() rstrip() split() split({1}) split({1},1)
rsplit({1},1) splitlines() replace({1},{1}) replace({1},{1},1) startswith({1}) endswith({1}) find({1}) rfind({1})
count({1})
index({1}) join(m) join({3}) isdigit() isalpha() isspace() isalnum() strip({1}) lstrip({1})
rstrip({1}) removeprefix({1}) removesuffix({1})
format({0},{0}) keys() values()|list items()|list get({1}) get('one',{0}) copy()
index({2}) count({2}) append(1) pop() update(d)""".split()


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def fill(self, pattern, depth):
        makers = [self.expression, self.text, self.integer, self.list]
        return re.sub(r"\{([0-3])\}", lambda found: makers[int(found[1])](depth - 1), pattern)

    def integer(self, depth):
        return self.random.choice(INTEGERS)

    def text(self, depth):
        return self.random.choice(TEXTS)

    def list(self, depth):
        return self.random.choice(LISTS)

    def bound(self):
        return self.random.choice(["", "", "0", "1", "2", "-1", "-2", "a", "100", "-100", "none"])

    def expression(self, depth):
        choose = self.random
        if depth <= 0 or choose.random() < 0.15:
            return choose.choice(ATOMS)
        kind = choose.randrange(11)
        inner = self.expression(depth - 1)
        if kind == 0:
            return f"({inner} {choose.choice(BINARY)} {self.expression(depth - 1)})"
        if kind == 1:
            return f"{choose.choice(ATOMS)} {choose.choice(BINARY)} {choose.choice(ATOMS)}"
        if kind == 2:
            return f"({inner})|{choose.choice(FILTERS)}"
        if kind == 3:
            return f"({inner})|{self.fill(choose.choice(FILTERS_WITH), depth)}"
        if kind == 4:
            return f"({choose.choice(TEXTS + DICTS + LISTS)}).{self.fill(choose.choice(METHODS), depth)}"
        if kind == 5:
            test = choose.choice(TESTS)
            return f"({inner}) is {choose.choice(['', 'not '])}{test}"
        if kind == 6:
            return f"({inner}) is {choose.choice(TESTS_WITH)}({self.expression(depth - 1)})"
        if kind == 7:
            step = choose.choice(["", "", ":", ":2", ":-1"])
            # Slices only texts and lists: for other values jinja2 gives nothing if it folds constants, and otherwise an
            # error.
            sliced = choose.choice([self.text(0), choose.choice(["l", "m", "x", "r", "[]"])])
            return f"({sliced})[{self.bound()}:{self.bound()}{step}]"
        if kind == 8:
            return f"({inner} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
        if kind == 9:
            return f"({choose.choice([self.text(0), self.list(0), 'd', inner])})[{self.expression(depth - 1)}]"
        return choose.choice([f"(not {inner})", f"(-{inner})", f"[{inner}, {self.integer(0)}]", f"{{'k': {inner}}}"])

    def space(self):
        return self.random.choice(["", "", " ", "\n", "  \n  ", "\n\n", "text", "\t"])

    def tag(self, inner):
        return "{%" + self.random.choice(["", "-", "+"]) + f" {inner} " + self.random.choice(["", "-", "+"]) + "%}"

    def block(self, depth):
        choose = self.random
        parts = [self.space()]
        for _ in range(choose.randint(1, 3)):
            kind = choose.randrange(12)
            if depth <= 0 or kind < 3:
                parts.append(choose.choice(["{{ %s }}", "{{- %s }}", "{{ %s -}}"]) % self.expression(2))
            elif kind == 3:
                parts += [self.tag(f"if {self.expression(2)}"), self.block(depth - 1)]
                if choose.random() < 0.5:
                    parts += [self.tag(f"elif {self.expression(1)}"), self.block(depth - 1)]
                if choose.random() < 0.5:
                    parts += [self.tag("else"), self.block(depth - 1)]
                parts.append(self.tag("endif"))
            elif kind in (4, 5):
                filtered = choose.choice(["", "", f" if {self.expression(1)}", " if i"])
                parts += [self.tag(f"for i in {choose.choice(LISTS + ['d', 's', 'm[1:]'])}{filtered}")]
                shown = choose.choice("index index0 first last length revindex previtem nextitem".split())
                parts += [self.space(), "{{ i }}{{ loop.%s }}" % shown, self.block(depth - 1)]
                leave = choose.choice(["", "", "{% if loop.index > 1 %}{% break %}{% endif %}", "{% continue %}"])
                parts += [leave, self.tag("else") + "none" if choose.random() < 0.3 else "", self.tag("endfor")]
            elif kind == 6:
                parts.append(self.tag(f"set v = {self.expression(2)}") + "{{ v }}")
            elif kind == 7:
                parts += [self.tag("set v"), self.block(depth - 1), self.tag("endset"), "{{ v }}"]
            elif kind == 8:
                parts.append(self.tag("set ns = namespace(c=0, q=a)"))
                parts.append(self.tag("for i in l") + "{% set ns.c = ns.c + i %}" + self.tag("endfor") + "{{ ns.c }}")
            elif kind == 9:
                parts.append(self.tag(f"macro f1(p, q={self.expression(1)})") + "{{ p }}:{{ q }}")
                parts.append(self.block(depth - 1))
                parts.append(self.tag("endmacro") + "{{ f1(%s) }}" % self.expression(1))
            elif kind == 10:
                parts += [self.tag("filter upper"), self.block(depth - 1), self.tag("endfilter")]
            else:
                parts.append(choose.choice(["{# note #}", "{#- note -#}", "{% raw %}{{ x }}{% endraw %}"]))
            parts.append(self.space())
        return "".join(parts)


def outcome(source):
    signal.alarm(2)
    try:
        return {"text": chat_template_utils._compile_jinja_template(source).render(**copy.deepcopy(VARIABLES))}
    except Exception as error:  # any Python error
        return {"error": f"{type(error).__name__}: {error}"[:120]}
    finally:
        signal.alarm(0)


def depends_on_python(result):
    text = result.get("text", "") + result.get("error", "")
    numbers = re.findall(r"\d{19,}", text)
    text = re.sub(r"[', \n]", "", text).lower()  # also if a filter split it
    return "at0x" in text or "timeouterror" in text or numbers or "range(" in text


def main():
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    maker = Maker(arguments.seed)
    cases = []
    while len(cases) < arguments.count:
        kind = maker.random.random()
        source = "{{ %s }}" % maker.expression(3) if kind < 0.7 else maker.block(2)
        result = outcome(source)
        if not depends_on_python(result):
            cases.append({"source": source, **result})
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"variables": VARIABLES, "cases": cases}, file, ensure_ascii=False, indent=0)
        file.write("\n")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors")


if __name__ == "__main__":
    main()
