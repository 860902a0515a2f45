"""Checks links without a network: those between the pages of the repository, or those of a built site.

    python3 tools/docs/links.py            README*, CONTRIBUTING, CHANGELOG, docs/: files and headings exist
    python3 tools/docs/links.py FOLDER     every href, src and fragment of the HTML below FOLDER resolves within it

Addresses of other machines are not checked. Prints broken links as file:line; exit status 1 if there are any.
"""
import glob, html.parser, os, re, subprocess, sys, urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]*)>?[^)]*\)")


def slug(heading, seen):
    """The fragment that GitHub assigns to a heading; `seen` counts equal ones."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().rstrip("#").strip())
    name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    count = seen[name] = seen.get(name, -1) + 1
    return name if count == 0 else f"{name}-{count}"


def lines_of(path):
    """(number, line) of a page's prose, without blocks of code."""
    fence = False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if re.match(r"\s*```", line):
                fence = not fence
            elif not fence:
                yield number, line


def fragments(path):
    seen = {}
    return {slug(line.lstrip("#"), seen) for _, line in lines_of(path) if re.match(r"#{1,6} ", line)}


def check_repository():
    pages = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True,
                           text=True, check=True).stdout.split()
    broken, count = [], 0
    for page in pages:
        for number, line in lines_of(os.path.join(ROOT, page)):
            for match in LINK.finditer(re.sub(r"`[^`]*`", lambda m: "`" * len(m[0]), line)):
                to, _, fragment = match[1].partition("#")
                if ":" in to or not match[1]:
                    continue
                count += 1
                file = os.path.join(ROOT, os.path.dirname(page), to) if to else os.path.join(ROOT, page)
                if not os.path.exists(file):
                    broken.append(f"{page}:{number}: there is no {to}")
                elif fragment and file.endswith(".md") and fragment not in fragments(file):
                    broken.append(f"{page}:{number}: {to or page} has no heading #{fragment}")
    return broken, count, len(pages)


class Page(html.parser.HTMLParser):
    """The fragments of a page of the site, and its links with their lines."""

    def __init__(self, path):
        super().__init__()
        self.names, self.links = {"", "top"}, []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name") and value:
                self.names.add(value)
            if key in ("href", "src") and value:
                self.links.append((value, self.getpos()[0]))


def check_site(folder):
    pages = {p: Page(p) for p in glob.glob(os.path.join(folder, "**", "*.html"), recursive=True)}
    broken, count = [], 0
    for path, page in pages.items():
        for link, line in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            file = urllib.parse.unquote(parts.path)
            to = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            name = os.path.relpath(path, folder)
            if not os.path.exists(to):
                broken.append(f"{name}:{line}: there is no {link}")
            elif to in pages and urllib.parse.unquote(parts.fragment) not in pages[to].names:
                broken.append(f"{name}:{line}: {link} leads to no place of that page")
    return broken, count, len(pages)


if __name__ == "__main__":
    found, links, files = check_site(sys.argv[1]) if len(sys.argv) > 1 else check_repository()
    for line in found:
        print(line)
    print(f"{links - len(found)} of {links} links of {files} pages are right")
    sys.exit(bool(found) or not links)
