"""Builds the documentation's site from docs/, README, the public headers and the sources that pages point to.

    .deps/docs/bin/python tools/docs/site.py OUT        (make docs: installs Sphinx, MyST and Furo into .deps/docs)

OUT/html is the site: pages that a browser can open from a folder, without a server, with search. OUT/source is the
input of Sphinx: copies of the pages in which a link to a file of the repository leads to a page with that file's text.
A warning of Sphinx, such as a link without target, ends the program with 1.
"""
import os, re, shutil, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers

ROOT = headers.ROOT
SECTIONS = [  # the sidebar: topics in the order in which a visitor needs them
    ("Begin", ["tutorial", "tutorial.zh", "install", "howto_launchers"]),
    ("Train", ["models", "data", "tokenizers", "finetuning", "vision", "configuration", "configuration_keys",
               "large_batches", "checkpoints", "object_storage", "planning", "performance"]),
    ("Learn", ["learn/collectives", "learn/data_parallel", "learn/zero3", "learn/tensor_parallel",
               "learn/sequence_parallel", "learn/context_parallel", "learn/pipeline_parallel",
               "learn/expert_parallel"]),
    ("学习", ["learn/collectives.zh", "learn/data_parallel.zh", "learn/zero3.zh", "learn/tensor_parallel.zh",
              "learn/sequence_parallel.zh", "learn/context_parallel.zh", "learn/pipeline_parallel.zh",
              "learn/expert_parallel.zh"]),
    ("Reference", ["strategies", "precision", "sharding", "parallelism", "pipelines", "communication", "launching",
                   "faces", "tpu"]),
    ("Inside", ["architecture", "glossary", "style", "dependencies"]),
]
CONF = '''
project = "Tessera"
html_title = "Tessera"
extensions = ["myst_parser"]
html_theme = "furo"
html_css_files = ["tessera.css"]
html_static_path = ["static"]
html_show_sphinx = False
html_show_copyright = False
smartquotes = False
html_copy_source = False
myst_heading_anchors = 5
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
'''
CSS = '''
table { display: block; overflow-x: auto; }                 /* a wide table scrolls, the page does not */
code.literal { overflow-wrap: anywhere; }
article pre { font-size: 0.8rem; }
h2 code.literal, h3 code.literal { font-size: 0.75em; background: none; border: 0; }
.sidebar-brand-text { font-size: 1.6rem; }
article img { background: #fff; }                           /* drawings have dark strokes on no ground */
@media (max-width: 46em) { article pre { font-size: 0.7rem; } }
'''
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".py": "python", ".sh": "bash", ".json": "json", ".yaml": "yaml",
             ".md": "md", ".cmake": "cmake"}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]*)(#[^)\s]*)?(\))")


class Site:
    def __init__(self, out):
        self.html, self.source = os.path.join(out, "html"), os.path.join(out, "source")
        self.code = {}  # path in the repository -> name of its page

    def write(self, path, text):
        path = os.path.join(self.source, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def page(self, source, target):
        """Copies a page of the repository and adjusts its links to the site."""
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            text = file.read()

        def link(match):
            before, to, anchor, after = match[1], match[2], match[3] or "", match[4]
            if not to or ":" in to:
                return match[0]
            found = os.path.normpath(os.path.join(os.path.dirname(source), to))
            if not os.path.exists(os.path.join(ROOT, found)):
                raise SystemExit(f"{source}: a link to {to}: there is no such file")
            if found == "README.md":
                place = "index.md"
            elif found == "README.zh.md":
                place = "readme.zh.md"
            elif found.startswith("docs/"):
                place = found[len("docs/"):]
            elif os.path.isdir(os.path.join(ROOT, found)):
                return before.lstrip("!")[1:-2]
            else:
                place = self.code.setdefault(found, "code/" + found.replace("/", ".") + ".md")
                anchor = ""
            return before + os.path.relpath(place, os.path.dirname(target) or ".") + anchor + after

        # A link's text may be code, so only blocks of code are skipped here.
        parts = re.split(r"(^[ ]*```.*?^[ ]*```[^\n]*$)", text, flags=re.M | re.S)
        self.write(target, "".join(p if i % 2 else LINK.sub(link, p) for i, p in enumerate(parts)))

    def build(self):
        shutil.rmtree(self.source, ignore_errors=True)
        self.write("conf.py", CONF)
        self.write("static/tessera.css", CSS)
        self.page("README.md", "index.md")
        self.page("README.zh.md", "readme.zh.md")
        self.page("CONTRIBUTING.md", "contributing.md")
        pages = []
        for folder, _, files in os.walk(os.path.join(ROOT, "docs")):
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith(".md"):
                    self.page(path, path[len("docs/"):])
                    pages.append(path[len("docs/"):-3])
                else:
                    target = os.path.join(self.source, path[len("docs/"):])
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    shutil.copy(os.path.join(ROOT, path), target)
        api = self.reference()
        for path, page in sorted(self.code.items()):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text = file.read()
            language = LANGUAGES.get(os.path.splitext(path)[1], "text")
            self.write(page, f"---\norphan: true\n---\n# {path}\n\n``````{language}\n{text}\n``````\n")
        self.contents(pages, api)
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "4", "-b", "html"]
        return subprocess.run([*sphinx, self.source, self.html]).returncode

    def contents(self, pages, api):
        """The side bar, at the end of the first page."""
        known = {page for _, section in SECTIONS for page in section}
        rest = sorted(set(pages) - known)
        sections = [(title, [p for p in section if p in pages]) for title, section in SECTIONS]
        sections[-1] = ("Inside", sections[-1][1] + rest + ["contributing"])
        sections.insert(4, ("C++ API", api))
        said = ""
        for title, names in sections:
            if names:
                said += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n" + "\n".join(names) + "\n```\n"
        said += "\n```{toctree}\n:hidden:\nreadme.zh\n```\n"
        with open(os.path.join(self.source, "index.md"), "a", encoding="utf-8") as file:
            file.write(said)

    def reference(self):
        """Pages of the public headers, one per folder; returns their names."""
        folders = {}
        for path in headers.public_headers():
            folders.setdefault("/".join(path.split("/")[1:-1]) or "tessera", []).append(path)
        names = []
        for folder, paths in sorted(folders.items()):
            said = f"# {folder}\n\n"
            for path in paths:
                reader = headers.Reader(path).read()
                said += f"## `<{path}>`\n\n{prose(reader.about)}\n\n"
                for symbol in reader.symbols:
                    said += entry(symbol)
            name = "api/" + folder.replace("/", ".")
            self.write(name + ".md", said)
            names.append(name)
        self.write("api/index.md", "# C++ API\n\nMade from the public headers, those that `cmake --install` installs. "
                   "`#include <tessera/tessera.h>` is what most programs need, `<tessera/faces.h>` the faces of other "
                   "systems.\n\n" + "".join(f"- [{n[4:]}]({n[4:]}.md): " +
                                            ", ".join(f"`{os.path.basename(p)}`" for p in ps) + "\n"
                                            for n, ps in zip(names, (folders[f] for f in sorted(folders))))
                   + "\n```{toctree}\n:hidden:\n" + "\n".join(n[4:] for n in names) + "\n```\n")
        return ["api/index"]


def prose(doc):
    """A comment's text as Markdown; indented lines keep their layout."""
    said, block = [], []
    for line in doc.split("\n") + [""]:
        line = line.removeprefix("\\file").rstrip()
        if line.startswith("  "):
            block.append(line)
            continue
        if block:
            said.append("\n```text\n" + "\n".join(block) + "\n```\n")
            block = []
        pieces = re.split(r"(`[^`]*`)", line)
        said.append("".join(p if p.startswith("`") and p.endswith("`") and len(p) > 1
                            else re.sub(r"([\\`*_\[\]<>#|$~])", r"\\\1", p) for p in pieces))
    text = "\n".join(said).strip()
    return re.sub(r"(?m)^(\s*)([-+]|\d+[.)])(\s)", r"\1\\\2\3", text)


def entry(symbol, level=3):
    """A symbol, its comment and its members."""
    text = symbol.text.removesuffix(" {") if symbol.kind != "enum" else symbol.text
    said = f"{'#' * level} {symbol.kind} `{symbol.name}`\n\n```cpp\n{text}\n```\n\n{prose(symbol.doc)}\n\n"
    for member in symbol.members:
        if member.kind in ("class", "struct", "union", "enum"):
            said += entry(member, min(level + 1, 5))
            continue
        about = "" if member.shared else prose(member.doc).replace("\n", "\n  ")
        line = member.text.replace("`", "'")
        said += f"- `{line}`" + (f"\\\n  {about}" if about and "```" not in about else "") + "\n"
    return said + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(Site(os.path.abspath(sys.argv[1])).build())
