# README.zh.md and the Chinese tutorial contain the commands, code and links of the English originals.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/translations.py
python3 - <<'PY'
import sys
sys.path.insert(0, "tools/docs")
from translations import commands
same = commands("sh", "make train   # one\n") == commands("sh", "make train  # 一\n")
other = commands("sh", "tessera top --once") == commands("sh", "tessera top")
sys.exit("the comparison is wrong" if not same or other else 0)
PY
