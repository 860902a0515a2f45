"""Runs, parses or finds in compiled code every block of code in the documentation.

    python3 tools/docs/snippets.py BUILD

A block's language determines the check:
- `sh`: commands. Every flag of `tessera` must be known to its parser; make targets and scripts must exist. Lines
  that begin with `--` are flags of `tessera train`.
- `console`: a command after `$ ` and its output. The command is run and must print the same; `...` matches anything,
  and of a command that contains it, only the flags are checked.
- `cpp`: must be part of examples/ or of tests/faces/documentation.cpp, which the build compiles (comments and
  white space do not count).
- `cmake`: part of a CMakeLists.txt of examples/. `python`: compiles. `json`, `yaml`: `tessera config check` accepts it.
- `text`: drawings, messages, tables. A block without a language is treated as `console` or `sh` if it begins like
  one, else as text.
Prints problems as file:line; exit status 1 if there are any.
"""
import ast, glob, os, re, shlex, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NONE = "--no_such_flag_at_all"
FILES = {  # files that the transcripts refer to
    "accelerate.yaml": "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\n"
                       "downcast_bf16: 'no'\n"
                       "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                       "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: false\n"
                       "  fsdp_offload_params: false\n  fsdp_state_dict_type: "
                       "SHARDED_STATE_DICT\n  fsdp_shardng_strategy: FULL_SHARD\nnum_processes: 2\n",
    "circle.csv": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
    "ds.json": "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2}}\n",
}


def blocks(path):
    """(line, language, text) of each block of a page."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    at = 0
    while at < len(lines):
        if match := re.match(r"(\s*)(```+)(\S*)", lines[at]):
            end = next(i for i in range(at + 1, len(lines)) if re.match(r"\s*" + match[2] + r"\s*$", lines[i]))
            yield at + 1, match[3], "\n".join(line.removeprefix(match[1]) for line in lines[at + 1:end])
            at = end
        at += 1


def bare(code):
    """C++ without comments and white space."""
    return re.sub(r"\s+", "", re.sub(r"//[^\n]*|/\*.*?\*/", "", code, flags=re.S))


class Checker:
    def __init__(self, build):
        self.program = os.path.abspath(os.path.join(build, "tessera"))
        self.compiled = "\n".join(bare(open(p, encoding="utf-8").read()) for p in
                                  glob.glob(os.path.join(ROOT, "examples/**/*.cpp"), recursive=True)
                                  + glob.glob(os.path.join(ROOT, "examples/*.h"))
                                  + glob.glob(os.path.join(ROOT, "tests/faces/documentation.cpp")))
        self.cmake = "\n".join(open(p, encoding="utf-8").read() for p in
                               glob.glob(os.path.join(ROOT, "examples/**/CMakeLists.txt"), recursive=True))
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
            self.targets = set(re.findall(r"^([a-z-]+):", file.read(), re.M))
        self.files = {**FILES, "recorded.json": self.recorded(build)}
        self.launch_help = self.run(["launch", "--help"])[1]
        self.count = 0

    @staticmethod
    def recorded(build):
        """The output of examples/record_step."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recorded.json")
            subprocess.run([os.path.join(build, "examples/record_step"), path], stdout=subprocess.DEVNULL, check=True)
            with open(path, encoding="utf-8") as file:
                return file.read()

    def run(self, arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            try:
                done = subprocess.run([self.program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
            except subprocess.TimeoutExpired:
                return -1, "it ran for a minute"
            return done.returncode, done.stdout

    # -- one method for each kind of block; each returns the problems --

    def of_sh(self, text):
        found = []
        for line in re.sub(r"\\\n", " ", text).split("\n"):
            line = re.sub(r"\s#.*", "", line).strip()
            if line and not line.startswith("#"):
                found += self.command(line)
        return found

    def command(self, line):
        try:
            words = [w for w in shlex.split(line.replace("$(", "_").replace(">", " > ")) if w not in ("...", "…")]
        except ValueError as error:
            return [f"{line}: {error}"]
        if words and words[0].startswith("--"):
            words = ["tessera", "train", *words]
        for end in (i for i, w in enumerate(words) if w in ("|", ">", "&&", ";")):
            return self.command(shlex.join(words[:end])) + (
                self.command(shlex.join(words[end + 1:])) if words[end] != ">" else [])
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words and words[0] == "make":
            return [f"make has no target {w}" for w in words[1:] if "=" not in w and w not in self.targets]
        if words and words[0].startswith(("tools/", "tests/", "bench/")):
            return [] if os.path.exists(os.path.join(ROOT, words[0])) else [f"{words[0]} is not there"]
        places = [i for i, w in enumerate(words) if w.split("/")[-1] == "tessera" and not w.startswith("-")]
        found = []
        for here, after in zip(places, places[1:] + [len(words)]):
            if words[here - 1] != "-m" or here == 0:
                found += self.flags(words[here + 1:after])
        return found

    def flags(self, words):
        """The flags in one of its command lines that the program does not know."""
        if words[:1] == ["launch"]:
            found = []
            for at, word in enumerate(words[1:], 1):
                if word == "--" or re.search(r"\.py$|^PROGRAM$|^build/|^python3?$|^true$", word):
                    break
                name = word.split("=")[0]
                if word.startswith("-") and not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self.launch_help):
                    found.append(f"tessera launch has no {name}")
            return found
        if "--help" in words or not words or words[0].startswith("-") or not any(w.startswith("--") for w in words):
            code, said = self.run([*words, *([] if "--help" in words else ["--help"])])
            return [] if code == 0 else [f"tessera {' '.join(words)}: {said.strip()[:200]}"]
        code, said = self.run([*words, NONE])
        fine = rf"{NONE}|no such|is missing|no model:|problems? in the conf|cannot open|no complete checkpoint"
        fine += f"|^({'|'.join(FILES)}):"
        problems = [line.strip() for line in said.split("\n") if re.match(r"  \S|tessera:", line)]
        wrong = [line for line in problems if not re.search(fine, line)]
        if code != 2 or NONE not in said:
            wrong = [f"exit status {code}: {said.strip()[:300]}"]
        return [f"tessera {' '.join(words[:2])}: {l}" for l in wrong]

    def of_console(self, text):
        found = []
        for part in re.split(r"(?m)^\$ ", text)[1:]:
            line, _, said = part.partition("\n")
            words = shlex.split(line)
            if words[0].split("/")[-1] != "tessera" or "..." in words or words[1] == "launch":
                found += self.command(line)
                continue
            _, output = self.run(words[1:])
            pattern = r"\s+".join(re.escape(w).replace(re.escape("..."), ".*") for w in said.split())
            pattern = re.sub(r"in\\s\+\d+\\\.\d+\\s\+s;", r"in\\s+[\\d.]+\\s+s;", pattern)  # the duration
            if not re.search(pattern, output, re.S):
                found.append(f"`{line}` prints something else:\n{output}")
        return found

    def of_cpp(self, text):
        missing = [part for part in re.split(r"\n\s*\n", text) if bare(part) and bare(part) not in self.compiled]
        return [f"no part of examples/ or tests/faces/documentation.cpp: {part.strip()[:100]}" for part in missing]

    def of_cmake(self, text):
        return [] if text.strip() in self.cmake else ["no part of a CMakeLists.txt of examples/"]

    def of_python(self, text):
        try:
            ast.parse(text)
        except SyntaxError as error:
            return [str(error)]
        return []

    def of_config(self, text, suffix):
        with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
            file.write(text)
            file.flush()
            code, said = self.run(["config", "check", file.name])
        return [] if code == 0 else [said]

    def check(self, page, line, language, text):
        kinds = {"sh": self.of_sh, "console": self.of_console, "cpp": self.of_cpp, "cmake": self.of_cmake,
                 "python": self.of_python,
                 "json": lambda t: self.of_config(t, ".json"), "yaml": lambda t: self.of_config(t, ".yaml"),
                 "text": lambda t: []}
        if not language:
            commands = re.match(r"(\S*/)?tessera |make ", text)
            language = "console" if text.startswith("$ ") else "sh" if commands else "text"
        if language not in kinds:
            return [f"{page}:{line}: the block does not say what it is: {', '.join(kinds)}"]
        return [f"{page}:{line}: {problem}" for problem in kinds[language](text)]


def pages():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, text=True, check=True,
                           capture_output=True).stdout.split()
    return [n for n in names if "fixtures/" not in n]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    checker = Checker(sys.argv[1])
    work = [(page, *block) for page in pages() for block in blocks(page)]
    with ThreadPoolExecutor(4) as pool:
        problems = [p for found in pool.map(lambda w: checker.check(*w), work) for p in found]
    for problem in problems:
        print(problem)
    print(f"{len(work)} blocks of code, {len(problems)} problems")
    sys.exit(bool(problems) or not work)
