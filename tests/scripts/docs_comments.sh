# Every public symbol in an installed header has a comment (or belongs to a group under one comment).
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/headers.py
