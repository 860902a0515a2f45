# Public symbols, those of the headers that are installed, have comments: those that lack one may only become fewer.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/headers.py 547
