"""Lists the declarations of the public headers, and the comment on each.

    python3 tools/docs/headers.py [N]        lists public symbols without a comment; exit status 1 if there are more
                                             than N (0)

Public headers are those that cmake/Install.cmake installs: the closure of the umbrellas' and the examples' includes.
The reader knows the style of this project (one declaration after another, `///` above or `///<` behind), not C++.
A declaration that follows another without a blank line between them shares the comment of the first: a run of getters
needs one. No comment is required for defaulted or deleted special members, destructors, overrides, forward
declarations, namespaces called detail, private members, members of namespace std (a specialization has the meaning
that the standard defines), and the types that an iterator must have.
"""
import dataclasses, glob, os, re, sys

ITERATOR = ("iterator_category", "value_type", "difference_type", "pointer", "reference")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclasses.dataclass
class Symbol:
    """One declaration. `doc` is its comment without slashes; `shared`: the comment belongs to a run."""
    kind: str
    name: str
    text: str
    doc: str
    line: int
    scope: str
    shared: bool = False
    members: list = dataclasses.field(default_factory=list)


def public_headers():
    """Paths of the public headers, from the root, sorted: the same closure as cmake/Install.cmake's."""
    roots = ["tessera/tessera.h", "tessera/faces.h"]
    examples = [p for e in ("cpp", "h") for p in glob.glob(os.path.join(ROOT, "examples", "*." + e))]
    seen = {*roots, "tessera/base/version.h"}
    todo = [*roots, *(os.path.relpath(p, ROOT) for p in examples)]
    while todo:
        with open(os.path.join(ROOT, todo.pop()), encoding="utf-8") as file:
            for header in re.findall(r"^#include <(tessera/[^>]+)>", file.read(), re.M):
                if header not in seen:
                    seen.add(header)
                    todo.append(header)
    return sorted(seen)


def tokens(text):
    """(kind, text, line) of comments, strings, preprocessor lines, braces, semicolons, blank lines and the rest."""
    pattern = re.compile(r"""(?P<doc>///<?[^\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<blank>\n[ \t]*(?=\n))
        |(?P<string>R"(?P<mark>[^(\n]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
        |(?P<directive>(?<=\n)[ \t]*\#(?:\\\n|[^\n])*)|(?P<open>[{(\[])|(?P<close>[})\]])|(?P<end>;)|(?P<line>\n)
        |(?P<word>[A-Za-z0-9_]+)|(?P<other>.)""", re.X | re.S)
    line = 0  # a line break has been inserted before the first line, so that a directive there is recognized
    for match in pattern.finditer(text):
        kind = match.lastgroup if match.lastgroup != "mark" else "string"
        yield kind, match[0], line
        line += match[0].count("\n")


def name_of(text):
    """(kind, name) of a declaration's text without comments; kind None: nothing to describe."""
    text = re.sub(r"\[\[.*?\]\]", "", text).strip()
    template = r"^template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*(requires .*?\)\s+)?"
    plain = re.sub(template, "", text).strip()
    if re.match(r"(using namespace|static_assert|friend|extern template)\b", plain):
        return None, ""
    if match := re.match(r"using\s+(\w+)\s*=", plain):
        return "type", match[1]
    if re.match(r"(using|typedef)\b", plain):
        return None, ""  # a using-declaration is documented where the name is declared
    if match := re.match(r"(class|struct|union|enum(?: class| struct)?)\s+(?:alignas\([^)]*\)\s*)?(\w+)", plain):
        rest = plain[match.end():].strip()
        if rest == "":
            return "forward", match[2]
        if rest[0] in ":{" or rest.startswith("final") or rest[0] == "<":
            return match[1].split()[0], match[2]
    head = plain.split("(")[0] if "operator()" not in plain else "operator()"
    if match := re.search(r"operator\s*(\(\)|\[\]|[^\s(]+(?:\s\w+)?)\s*\(", plain):
        return "function", "operator" + match[1]
    if "(" in plain and "=" not in head and "{" not in head:
        if match := re.search(r"(~?\w+)\s*$", head):
            return "function", match[1]
    head = re.split(r"[={]", plain)[0]
    if match := re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", head):
        return "variable", match[1]
    return None, ""


def trivial(symbol, owner):
    """Whether a declaration needs no comment because its class describes it already."""
    return (symbol.kind == "forward" or symbol.name.startswith("~") or symbol.name in ("operator=", *ITERATOR)
            or symbol.name == "std" or "std" in symbol.scope.split("::")[:2]
            or bool(re.search(r"=\s*(default|delete)\s*;?$|\boverride\b", symbol.text))
            or (symbol.name == owner  # copied or moved
                and bool(re.match(rf"(constexpr\s+|explicit\s+)*\w+\((const )?{owner}\s*&&?\s*\w*\)", symbol.text))))


class Reader:
    """Reads one header into the symbols of its namespaces."""

    def __init__(self, path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            self.tokens = list(tokens("\n" + file.read()))
        self.at = 0
        self.path = path
        self.about = ""     # the header's description: \file
        self.symbols = []
        self.pending = []   # comment lines above the next declaration
        self.ended = 0      # line on which the last declaration ended

    def read(self):
        self.body("", None, "public", self.symbols)
        return self

    def body(self, scope, owner, access, into):
        """Declarations until the closing brace of this scope."""
        last = None
        run = None           # the comment that a run of declarations shares
        statement, start = "", 0
        blank = True
        hidden = bool(re.search(r"(^|::)(detail|internal)(::|$)", scope))
        while self.at < len(self.tokens):
            kind, text, line = self.tokens[self.at]
            self.at += 1
            if kind == "doc":
                self.comment(text, line, last, statement)
                continue
            if kind == "comment":
                if text.startswith("//") and not statement.strip() and line != self.ended:
                    self.pending.append(text[2:].strip())
                continue
            if kind in ("blank", "directive"):
                if not statement.strip():
                    if kind == "directive" and (m := re.match(r"\s*#define (\w+)\(?", text)):
                        said = " ".join(self.pending).strip()
                        self.symbols.append(Symbol("macro", m[1], text.split("\\")[0].strip(), said, line, scope))
                    blank, run = True, None
                    self.flush()
                continue
            if kind == "line":
                statement += " " if statement else ""
                continue
            if kind == "close" and text == "}":
                return
            if not statement.strip() and kind in ("word", "other", "open") and text.strip():
                start = line
            if kind == "other" and text == ":" and statement.strip() in ("public", "private", "protected"):
                access, statement, blank, run = statement.strip(), "", True, None
                self.pending = []
                continue
            if kind == "open" and text in "([":
                statement += text + self.skip(text)
                continue
            if kind == "open":
                opened = self.open(statement, scope, owner, access, into, start, run if not blank else None, hidden)
                if opened is None:       # an initializer: the statement continues
                    statement += "{" + self.skip("{")
                    continue
                last, run = opened
                statement, blank = "", False
                self.ended = self.tokens[self.at - 1][2]
                continue
            if kind == "end":
                statement = " ".join(statement.split())
                if statement:
                    shared = None if blank else run
                    last, run = self.add(statement, scope, owner, access, into, start, shared, hidden)
                    blank = False
                statement = ""
                self.ended = line
                continue
            statement += text

    def flush(self):
        if self.pending and not self.about and any(l.startswith("\\file") for l in self.pending):
            self.about = "\n".join(l for l in self.pending if l != "\\file")
        self.pending = []

    def comment(self, text, line, last, statement):
        if text.startswith("///<"):
            said = text[4:].strip()
            if last is not None and not statement.strip():
                last.doc = said if last.shared else (last.doc + "\n" + said).strip()
                last.shared = False
                self.ended = line
                last.trailing = True
        elif last is not None and getattr(last, "trailing", False) and self.ended == line - 1 \
                and not statement.strip() and self.indent(line) > 8:
            last.doc += "\n" + text[3:].strip()  # continuation of the trailing comment
            self.ended = line
        else:
            self.pending.append(text[4:].rstrip() if text.startswith("/// ") else text[3:].strip())

    def indent(self, line):
        with open(os.path.join(ROOT, self.path), encoding="utf-8") as file:
            text = file.readlines()[line - 1]
        return len(text) - len(text.lstrip())

    def skip(self, opening):
        """The text up to the bracket that closes the one just read."""
        depth, said = 1, ""
        while depth and self.at < len(self.tokens):
            kind, text, _ = self.tokens[self.at]
            self.at += 1
            depth += (kind == "open") - (kind == "close")
            said += "" if kind in ("doc", "comment") else " " if kind in ("line", "blank") else text
        return said

    def open(self, statement, scope, owner, access, into, start, run, hidden):
        statement = " ".join(statement.split())
        if match := re.match(r"(?:inline )?namespace\b\s*([\w:]*)$", statement):
            self.flush()
            self.body(f"{scope}::{match[1]}".strip(":"), None, "public", into)
            return None, None
        if statement.startswith('extern "C"'):
            self.body(scope, None, "public", into)
            return None, None
        kind, name = name_of(statement + " {")
        if kind in ("class", "struct", "union"):
            symbol, run = self.add(statement + " {", scope, owner, access, into, start, run, hidden)
            self.body(f"{scope}::{name}", name, "private" if kind == "class" else "public",
                      symbol.members if symbol else [])
            return symbol, run
        if kind == "enum":
            symbol, run = self.add(statement + " {", scope, owner, access, into, start, run, hidden)
            values = self.skip("{")
            if symbol:
                symbol.text += " " + " ".join(values.split())
            return symbol, run
        if kind == "function" and not re.search(r"=\s*$", statement):
            if ") :" in statement and re.search(r"[\w>]\s*$", statement.split(") :", 1)[1]):
                return None  # a brace within the list of member initializers
            self.skip("{")
            statement = re.split(r"\)\s:\s(?!:)", statement)[0] + ")" if ") : " in statement else statement
            return self.add(statement, scope, owner, access, into, start, run, hidden)
        return None

    def add(self, text, scope, owner, access, into, line, run, hidden):
        doc = "\n".join(l for l in self.pending if not l.startswith("\\file")).strip()
        if any(l.startswith("\\file") for l in self.pending):
            self.flush()
            doc = ""
        self.pending = []
        kind, name = name_of(text)
        if kind is None or hidden or access != "public":
            return None, doc or run
        symbol = Symbol(kind, name, text, doc or run or "", line, scope, shared=not doc and bool(run))
        if kind == "forward":
            return symbol, doc or run
        into.append(symbol)
        return symbol, doc or run


def walk(symbols, owner=""):
    for symbol in symbols:
        yield symbol, owner
        yield from walk(symbol.members, symbol.name)


def undocumented():
    """'path:line: scope::name' of public symbols without a comment, and the number of symbols."""
    missing, count = [], 0
    for path in public_headers():
        for symbol, owner in walk(Reader(path).read().symbols):
            if trivial(symbol, owner):
                continue
            count += 1
            if not symbol.doc:
                missing.append(f"{path}:{symbol.line}: {symbol.kind} {symbol.scope}::{symbol.name} has no comment")
    return missing, count


if __name__ == "__main__":
    without, total = undocumented()
    print("\n".join(without))
    print(f"{total - len(without)} of {total} public symbols of {len(public_headers())} headers have a comment")
    sys.exit(len(without) > int(sys.argv[1] if len(sys.argv) > 1 else 0))
