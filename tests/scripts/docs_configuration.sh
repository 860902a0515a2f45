# docs/configuration.md and docs/configuration_keys.md match the program's output.
set -euo pipefail
cd "$(dirname "$0")/../.."
diff <(tools/docs_configuration.sh "$1") docs/configuration.md
diff <(tools/docs_configuration.sh "$1" keys) docs/configuration_keys.md
