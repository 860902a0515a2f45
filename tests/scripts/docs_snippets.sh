# Every code block in README and docs/ is run, parsed by the program, or compiled as part of the build.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
python3 tools/docs/snippets.py "$build"
# The checker finds broken snippets.
python3 - "$build" <<'PY'
import sys
sys.path.insert(0, "tools/docs")
from snippets import Checker
checker = Checker(sys.argv[1])
for language, text in (("sh", "tessera train --train_fill x"),
                       ("sh", "tessera launch --num_proceses 2 -- true"),
                       ("sh", "make nothing_of_that_name"), ("sh", "tessera train --max_steps many"),
                       ("console", "$ tessera plan groups --mesh dp=2 --rank 0\n3 ranks"),
                       ("cpp", "tessera::Shrded x;"), ("python", "x = ("), ("yaml", "distributed_typ: FSDP"),
                       ("", "$ tessera train --train_fill x ..."), ("shell", "")):
    if not checker.check("page", 1, language, text):
        sys.exit(f"this was not seen to be wrong: {text}")
PY
