# Every link between the pages of the repository leads to an existing file and, if it names one, heading.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tools/docs/links.py
# The checker finds broken links.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo '<p id=a></p><a href="#a"></a><a href="#b"></a><a href="c.html"></a>' > "$folder/index.html"
found=$(python3 tools/docs/links.py "$folder") && { echo "broken links were not seen"; exit 1; }
[[ $found == *'#b leads to no place'*'there is no c.html'*'1 of 3 links'* ]] || { echo "$found"; exit 1; }
