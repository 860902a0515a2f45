#pragma once
/// \file
/// A tokenizer for tests: one id per byte, except that runs of blanks and line ends are one id, so that cutting the
/// text shows.

#include <tessera/text/tokenizer.h>

namespace tessera::data {

class FakeTokenizer : public text::Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    bool in_blank = false;
    for (const char c : text) {
      const bool blank = c == ' ' || c == '\n';
      if (!blank || !in_blank) ids.push_back(blank ? 0 : static_cast<unsigned char>(c));
      in_blank = blank;
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return std::string(ids.size(), '?'); }
  std::int64_t vocab_size() const override { return 256; }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  void save(const std::string&) const override {}
};

}  // namespace tessera::data
