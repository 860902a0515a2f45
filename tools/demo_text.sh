#!/bin/bash
# Writes the training text of the demonstrations, the King James Bible (Debian's bible-kjv):
#
#   tools/demo_text.sh FILE [KILOBYTES]        KILOBYTES: only the beginning, for quick checks
set -euo pipefail
text=$1 kilobytes=${2:-}

# The source has one verse per line with its reference (Ge1:1 ...). The references are removed, because they would be a
# tenth of the text, and each chapter becomes a paragraph of verses followed by an empty line.
bible -p /usr/lib/ -f gen1:1-rev22:21 < /dev/null |
  awk '{ split($1, place, ":"); if (NR > 1 && place[1] != chapter) print ""
         chapter = place[1]; sub(/^[^ ]+ /, ""); print }' |
  { if [ -n "$kilobytes" ]; then head -c "$((kilobytes * 1000))"; cat > /dev/null; else cat; fi; } > "$text.new"
if cmp -s "$text.new" "$text"; then rm "$text.new"; else mv "$text.new" "$text"; fi
echo "text: $text, $(stat -c %s "$text") bytes (King James Version, Debian's bible-kjv)"
