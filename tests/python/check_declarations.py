"""Compares python/tessera/_c.py with tessera/c/tessera_c.h: functions, kinds of arguments,
constants and structs.

    python3 tests/python/check_declarations.py tessera/c/tessera_c.h
"""
import re
import sys

from tessera import _c

KINDS = {"tessera_status": "!", "int32_t": "i", "int64_t": "l", "tessera_dtype": "i", "tessera_op": "i",
         "tessera_world": "w", "tessera_group": "w", "tessera_work": "w", "const char*": "s", "char*": "p",
         "double": "d"}


def kind(declared):
    declared = re.sub(r"\s+", " ", declared.strip())
    for type_, letter in KINDS.items():
        if re.fullmatch(re.escape(type_) + r"( \w+)?", declared):
            return letter
    if "*" in declared:
        return "p"
    raise SystemExit("check_declarations: what is {!r}?".format(declared))


def main(path):
    with open(path) as file:
        text = file.read()
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    functions, wrong = {}, []
    plain = re.sub(r"typedef struct.*?\}\s*\w+;", "", text, flags=re.S)
    for result, name, arguments in re.findall(r"((?:const char\*)|\w+)\s+tessera_(\w+)\(([^)]*)\);", plain):
        kinds = [] if arguments.strip() in ("", "void") else [kind(a) for a in arguments.split(",")]
        letters = "".join(kinds).replace("!", "i")
        result = kind(result)
        functions[name] = "!" + letters if result == "!" else result + ":" + letters
    for name in sorted(set(functions) | set(_c.FUNCTIONS)):
        if functions.get(name) != _c.FUNCTIONS.get(name):
            wrong.append("tessera_{}: the header has {}, _c.py {}".format(name, functions.get(name),
                                                                         _c.FUNCTIONS.get(name)))
    constants = dict(re.findall(r"TESSERA_(\w+) = (-?\d+)", text))
    for name, value in constants.items():
        own = getattr(_c, {"ABI_VERSION": "ABI"}.get(name, name), None)
        if own != int(value):
            wrong.append("TESSERA_{} = {}, _c.py has {}".format(name, value, own))
    for struct, own in (("options", _c.Options), ("call", _c.Call), ("store_functions", _c.StoreFunctions),
                        ("view", _c.View)):
        pattern = r"typedef struct tessera_{} \{{(.*?)\}} tessera_{};".format(struct, struct)
        body = re.search(pattern, text, re.S).group(1)
        names = [(re.findall(r"\(\*(\w+)\)", d) or re.findall(r"(\w+)$", d.strip()))[0] for d in body.split(";")
                 if d.strip()]
        if names != [n for n, _ in own._fields_]:
            wrong.append("struct {}: {} in the header, {} in _c.py".format(struct, names, [n for n, _ in own._fields_]))
    if len(functions) < 60 or wrong:
        sys.exit("\n".join(wrong) or "check_declarations: {} functions found only".format(len(functions)))


if __name__ == "__main__":
    main(sys.argv[1])
