# Comments, messages and pages contain no more of the constructions that docs/style.md rejects than recorded.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/english.py --check
# The checker finds them in a comment, a message and a page.
python3 - <<'PY'
import pathlib, sys, tempfile
sys.path.insert(0, "tools/docs")
import english
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    (path / "a.h").write_text('// What lies here is no copy.\nint x;  ///< bytes\nthrow Error("leave it out here");\n')
    (path / "b.md").write_text("It goes on.\n```\nIt goes on.\n```\n")
    seen = [name for file in ("a.h", "b.md") for _, text in english.prose(path / file)
            for name, pattern in english.COMPILED.items() if pattern.search(text)]
expected = ["lies, stands", "is no", "leave out", "goes on"]
sys.exit(f"seen: {seen}" if [name for name in seen if name in expected] != expected else 0)
PY
