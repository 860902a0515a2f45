#include <tessera/text/bpe/merges_json.h>

namespace tessera::text {

void for_each_merge(const Value& list, const std::function<void(std::string, std::string, const Value&)>& merge) {
  for (const Value& pair : list.items()) {
    if (!pair.is_string()) {
      if (pair.items().size() != 2) throw InputError(concat(pair.where().str(), ": expected a pair of tokens"));
      merge(pair.items()[0].as_string(), pair.items()[1].as_string(), pair);
      continue;
    }
    const std::string& text = pair.as_string();
    if (text.starts_with("#version")) continue;  // header line of an old merges.txt
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      throw InputError(
          concat(pair.where().str(), ": expected two tokens with a blank between them, found \"", text, "\""));
    merge(text.substr(0, blank), text.substr(blank + 1), pair);
  }
}

}  // namespace tessera::text
