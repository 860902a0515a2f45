"""Finds training command lines in a shell script or a Markdown page, with the variables that the text itself sets.

Values that only the caller knows (arguments, results of `read` and of commands, randomness, `...` in a page) become
UNREAD. The first assignment of a variable counts, and the first branch of a test is taken.
"""
import ast
import operator
import re
import shlex

UNREAD = "UNREADABLE"
SET_BY_LAUNCHERS = re.compile("NODE|GPU|PORT|RANK|WORLD_SIZE|NUM_PROC|NPROC")  # replaced by 1
LIST = r"\[[@*]\]"
VARIABLE = re.compile(r"\$\{(\w+(?:" + LIST + r")?)(?::?[-=]([^{}]*))?\}|\$(\w+)")
SUM = re.compile(r"\$\(\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\)|\$\[([^\[\]]+)\]")
NO_SUM = re.compile(r"\$\([^()]*\)|`[^`]*`|\$[@*#?!$]")
END = re.compile(r"\d?>|&>|[|&;]+$|<$")
PLACE = re.compile(r"\.\.\.|<[^<>]+>")  # placeholders for the reader
DEVICES = re.compile(r"(?:--nproc[_-]per[_-]node|--num_gpus|--num_processes|NUM_GPUS)[= ](\d+)")


def quotient(left, right):
    """Quotient of integers, truncated towards zero as in a shell."""
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: quotient,
             ast.FloorDiv: quotient, ast.Mod: lambda left, right: left - right * quotient(left, right)}


def arithmetic(text):
    """The value of an integer expression in a shell; None if it is malformed or contains anything but numbers."""
    def value(node):
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return -value(node.operand) if isinstance(node.op, ast.USub) else value(node.operand)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise ValueError(text)
    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def known(name, variables):
    if name in variables:
        return variables[name]
    if name.endswith("]"):
        return ""  # a list that the text does not define is empty
    if name == "PROMPT_VERSION":
        return "v1"  # the value that LLaVA's comments tell the reader to set
    return "1" if SET_BY_LAUNCHERS.search(name) else UNREAD


def expand(text, variables):
    """The text with its variables and arithmetic expanded."""
    def variable(match):
        name = re.sub(LIST, "[@]", match[1] or match[3])
        return match[2] if match[2] is not None and name not in variables else known(name, variables)

    def sum_of(match):
        if "$" in (match[1] or match[2] or ""):
            return match[0]  # expanded in the next round
        inner = re.sub(r"\b[A-Za-z_]\w*", lambda name: known(name[0], variables), match[1] or match[2] or "")
        if "$" in inner:
            return f"$(({inner}))"
        value = arithmetic(inner)
        return UNREAD if value is None else str(value)
    for _ in range(5):
        text = NO_SUM.sub(UNREAD, SUM.sub(sum_of, VARIABLE.sub(variable, text)))
    return re.sub(r"\$\{[^{}]*\}", UNREAD, text)


def lists(text):
    """NAME=(...) and NAME+=(...), as NAME[@]."""
    found = {}
    for name, more, body in re.findall(r"^\s*(\w+)(\+?)=\(\s*\n?(.*?)\n?\s*\)\s*$", text, re.M | re.S):
        before = found.get(name + "[@]", "")
        body = re.sub(r"\s*(#[^\n]*)?\n", " ", body + "\n")
        # a list that is extended; quotes around a flag and its value remain until the shell splits them
        body = re.sub(r'"?\$\{' + name + LIST + r'\}"?', lambda _: before, body)
        body = re.sub(r'"(--[\w-]+ [^"\s]+|\$\{\w+' + LIST + r'\})"', r"\1", body)
        found[name + "[@]"] = before + " " + body if more else body
    return found


def assignments(text):
    """NAME=word, NAME+=words, the first word of `for NAME in words`, `: ${NAME:=word}`, and lists. An empty one is left
    for the reader to fill in."""
    found = lists(text)
    pattern = (r"^\s*(?:(?:export|local|declare|readonly) +)?(\w+)(\+?)="
               r"(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|"
               r"(?![(\"'])((?:\$\(\(.*?\)\)(?!\))|\$\[.*?\]|\$\([^()]*\)|`[^`]*`|[^\s;])+))")
    for name, more, quoted, single, bare in re.findall(pattern, text, re.M):
        itself = r"\$\{" + name + r"\}|\$" + name + r"\b"
        # NAME=${NAME:-word}: the word, unless the caller sets a different value
        word = re.sub(r"^\$\{" + name + r":?-[\"']?([^}]*?)[\"']?\}$", r"\1", quoted or single or bare or UNREAD)
        if more or re.match(itself, word):
            longer = found.get(name, "") + " " + re.sub("^(" + itself + ")", "", word)
            found[name] = found[name + "[@]"] = longer.strip()
        found.setdefault(name, word)
        found.setdefault(name + "[@]", word)
    loops = re.findall(r"^\s*for +(\w+) +in +[\"']?([^\s;\"']+)", text, re.M)
    for name, word in loops + re.findall(r"^\s*: +\"?\$\{(\w+):?=([^}]*)\}", text, re.M):
        found.setdefault(name, word)
    return found


def cleaned(text):
    """Without comments, line continuations, and all branches of a test but the first."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M)
    text = re.sub(r"\\\s*(#.*)?\n", " ", text)
    return re.sub(r"^\s*(elif|else)\b.*?(?=^\s*fi\b)", "", text, flags=re.M | re.S)


def without_additions(words):
    """Drops a caller's additional arguments where no flag expects a value."""
    words = [UNREAD if PLACE.fullmatch(word) else word for word in words]
    return [word for i, word in enumerate(words)
            if word != UNREAD or (i and words[i - 1].startswith("--") and "=" not in words[i - 1])]


def command_lines(path, text, training):
    """(program, words after it, devices or None) of each command that starts a program of `training`."""
    pieces = re.findall(r"```(?:bash|sh|shell|console)?\n(.*?)```", text, re.S) if path.endswith(".md") else [text]
    for piece in map(cleaned, pieces):
        variables = assignments(piece)
        for line in piece.split("\n"):
            try:
                line = expand(line, variables).replace("&>", " > ").replace("; ", " ; ")
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            at = next((i for i, word in enumerate(words) if training.search(word)), None)
            if at is None:
                continue
            rest = words[at + 1:]
            rest = without_additions(rest[:next((i for i, word in enumerate(rest) if END.match(word)), len(rest))])
            count = DEVICES.search(" ".join(words[:at]))
            if sum(word.startswith("--") for word in rest) > 3:
                yield words[at], rest, int(count[1]) if count else None
