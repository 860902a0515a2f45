# docs/configuration.md is what the program says.
set -euo pipefail
cd "$(dirname "$0")/../.."
diff <(tools/docs_configuration.sh "$1") docs/configuration.md
