#pragma once
/// \file
/// A tokenizer for tests: one id per byte, and separate ids for the marks of documents and conversations.

#include <tessera/text/tokenizer.h>

namespace tessera::data {

class MarkedTokenizer : public text::Tokenizer {
 public:
  static constexpr std::int32_t begin = 256, end = 257, turn_begin = 258, turn_end = 259;

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    while (!text.empty()) {
      const bool opens = text.starts_with("<|im_start|>"), closes = text.starts_with("<|im_end|>");
      ids.push_back(opens ? turn_begin : closes ? turn_end : static_cast<unsigned char>(text[0]));
      text.remove_prefix(opens ? 12 : closes ? 10 : 1);
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return std::string(ids.size(), '?'); }
  std::int64_t vocab_size() const override { return 260; }
  std::optional<std::int32_t> end_of_text() const override { return end; }
  std::optional<std::int32_t> end_of_turn() const override { return turn_end; }
  std::vector<std::int32_t> prefix() const override { return {begin}; }
  std::optional<std::int32_t> token_id(std::string_view content) const override {
    if (content == "<|im_start|>") return turn_begin;
    if (content == "<|im_end|>") return turn_end;
    return std::nullopt;
  }
  void save(const std::string&) const override {}
};

}  // namespace tessera::data
