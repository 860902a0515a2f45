"""Compares the Chinese pages with the English ones, as far as a program can.

    python3 tools/docs/translations.py

In README, the tutorial and docs/learn, headings must have the same levels, blocks of code the same commands and code
(comments may be translated), and links the same targets in the same sections. Prints differences; exit status 1 if
there are any.
"""
import os, re, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from snippets import ROOT, bare, blocks

LESSONS = ["collectives", "data_parallel", "zero3", "tensor_parallel", "sequence_parallel", "context_parallel",
           "pipeline_parallel", "expert_parallel"]
PAGES = [("README.md", "README.zh.md"), ("docs/tutorial.md", "docs/tutorial.zh.md"),
         *((f"docs/learn/{name}.md", f"docs/learn/{name}.zh.md") for name in LESSONS)]


def commands(language, text):
    """A block without its comments."""
    if language == "cpp":
        return bare(text)
    return "\n".join(filter(None, (" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in text.split("\n"))))


def target(link):
    """Where a link leads, in English. A page that has a translation loses its fragment: headings are translated."""
    page, _, fragment = re.sub(r"\.zh\.md\b", ".md", link).partition("#")
    translated = os.path.basename(page) in {os.path.basename(english) for english, _ in PAGES}
    return page if translated or not fragment else f"{page}#{fragment}"


def sections(path):
    """For each section: the level of its heading and its links, sorted."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    parts = re.split(r"^(#+) .*$", text, flags=re.M)
    own = os.path.basename(target(path))
    plain = [target(link) for link in re.findall(r"\]\(([^)]+)\)", parts[0])]
    found = [(0, sorted(link for link in plain if link != own))]
    for level, body in zip(parts[1::2], parts[2::2]):
        links = [target(link) for link in re.findall(r"\]\(([^)]+)\)", body)]
        found.append((len(level), sorted(link for link in links if link != own)))
    return found


def differences(english, chinese):
    found = []
    ours, theirs = list(blocks(english)), list(blocks(chinese))
    if len(ours) != len(theirs):
        found.append(f"{english} has {len(ours)} blocks of code, {chinese} {len(theirs)}")
    for (line, language, text), (place, other, translated) in zip(ours, theirs):
        if (language, commands(language, text)) != (other, commands(other, translated)):
            found.append(f"{english}:{line} and {chinese}:{place} show different code")
    ours, theirs = sections(english), sections(chinese)
    if [level for level, _ in ours] != [level for level, _ in theirs]:
        found.append(f"{english} and {chinese} have different headings")
    for number, ((_, links), (_, others)) in enumerate(zip(ours, theirs)):
        for link in sorted(set(links) ^ set(others)):
            found.append(f"section {number} of {english if link in links else chinese} alone leads to {link}")
    return found


if __name__ == "__main__":
    problems = [problem for pair in PAGES for problem in differences(*pair)]
    for problem in problems:
        print(problem)
    print(f"{len(PAGES)} pages and their translations, {len(problems)} differences")
    sys.exit(bool(problems))
