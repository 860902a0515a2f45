# Every public symbol, those of the headers that are installed, has a comment (or is one of a run under one comment).
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/headers.py
