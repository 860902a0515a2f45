#pragma once
/// \file
/// Byte-pair encoding over characters, the form in which tokenizer.json represents SentencePiece's BPE models (Llama 2,
/// Mistral, Gemma, Phi-3): a character missing from the vocabulary becomes its bytes ("<0xE2>") or the unknown token.

#include <tessera/text/bpe/bpe_model.h>
#include <tessera/text/pipeline/word_model.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

/// The contents of a model of type BPE. Ids are those of `ids`.
struct CharacterBpeParts {
  std::unordered_map<std::string, std::int32_t> ids;       ///< the vocabulary by spelling
  std::vector<Merge> merges;                               ///< by rank
  std::vector<std::pair<std::string, std::string>> spelt;  ///< the merges' left and right sides by spelling
  std::optional<std::int32_t> unknown;                     ///< if not set, unknown characters are dropped
  bool fuse_unknown = false;                               ///< one unknown token for adjacent unknown characters
  bool byte_fallback = false;                              ///< bytes instead of the unknown token, if all have a token
  bool ignore_merges = false;                              ///< a word that is itself a token becomes that token
  /// added to characters inside a word, and to the last character
  std::string continuing_prefix, end_suffix;
};

class CharacterBpe final : public WordModel {
 public:
  explicit CharacterBpe(CharacterBpeParts parts);

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override;

  /// Parts end before U+2581 where no merge can cross: no merge has a left side that ends with the preceding character
  /// and a right side that begins with U+2581. So the merges on either side are independent of each other.
  std::size_t part_end(std::string_view word, std::size_t at) const override;

 private:
  std::int32_t character(std::string_view spelling) const;  ///< no_token: not in the vocabulary
  void find_borders();

  CharacterBpeParts parts_;
  BpeModel model_;
  std::unordered_map<std::uint32_t, std::int32_t> characters_;  ///< single-character tokens, by code point
  std::array<std::int32_t, 128> ascii_{};
  std::array<std::int32_t, 256> bytes_{};  ///< the tokens "<0x00>" ...
  bool has_borders_ = false;
  std::array<bool, 128> ascii_joins_{};  ///< a merge may join this character with a following U+2581
  std::vector<std::uint32_t> joins_;     ///< the same beyond ASCII, sorted
};

}  // namespace tessera::text
