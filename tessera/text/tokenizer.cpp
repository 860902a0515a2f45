#include <tessera/text/tokenizer.h>

#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::text {

Encoding Tokenizer::encode_text(std::string_view utf8, std::int64_t most_ids) const {
  const std::vector<std::int32_t> before = prefix(), after = suffix();
  std::vector<std::int32_t> text = encode(utf8);
  const std::size_t special = before.size() + after.size(),
                    most = static_cast<std::size_t>(std::max<std::int64_t>(most_ids, 0));
  if (most > 0) text.resize(std::min(text.size(), most > special ? most - special : 0));
  Encoding encoding{before, {}};
  encoding.ids.insert(encoding.ids.end(), text.begin(), text.end());
  encoding.ids.insert(encoding.ids.end(), after.begin(), after.end());
  encoding.types.assign(encoding.ids.size(), 0);
  return encoding;
}

Encoding Tokenizer::encode_pair(std::string_view /*first*/, std::string_view /*second*/,
                                std::int64_t /*most_ids*/) const {
  throw InputError(
      "encode_pair: this tokenizer has no template for two texts; use the WordPiece tokenizer of a BERT folder, or "
      "join "
      "the texts yourself and call encode()");
}

}  // namespace tessera::text
