#pragma once
/// \file
/// Byte-pair encoding over characters, as SentencePiece's BPE models are written into a tokenizer.json (Llama 2,
/// Mistral, Gemma, Phi-3): a character that the vocabulary lacks becomes its bytes ("<0xE2>"), or unknown.

#include <tessera/text/bpe/bpe_model.h>
#include <tessera/text/pipeline/word_model.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

/// What a model of type BPE says. Ids are those of `ids`.
struct CharacterBpeParts {
  std::unordered_map<std::string, std::int32_t> ids;       ///< the vocabulary by spelling
  std::vector<Merge> merges;                               ///< by rank
  std::vector<std::pair<std::string, std::string>> spelt;  ///< the merges' left and right sides by spelling
  std::optional<std::int32_t> unknown;                     ///< without one, unknown characters vanish
  bool fuse_unknown = false;                               ///< one unknown token for neighbouring unknown characters
  bool byte_fallback = false;                              ///< bytes instead of unknown, where all have a token
  bool ignore_merges = false;                              ///< a word that is a token is that token
  std::string continuing_prefix, end_suffix;               ///< spell characters inside a word, and the last one
};

class CharacterBpe final : public WordModel {
 public:
  explicit CharacterBpe(CharacterBpeParts parts);

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override;

  /// Parts end before U+2581 where no merge can reach across: no left side of a merge ends with the character before
  /// it while the right side begins with U+2581. What merges on one side of such a place cannot depend on the other.
  std::size_t part_end(std::string_view word, std::size_t at) const override;

 private:
  std::int32_t character(std::string_view spelling) const;  ///< no_token: the vocabulary lacks it
  void find_borders();

  CharacterBpeParts parts_;
  BpeModel model_;
  std::unordered_map<std::uint32_t, std::int32_t> characters_;  ///< tokens of one character, by code point
  std::array<std::int32_t, 128> ascii_{};
  std::array<std::int32_t, 256> bytes_{};  ///< the tokens "<0x00>" ...
  bool has_borders_ = false;
  std::array<bool, 128> ascii_joins_{};  ///< a merge may join this character with a U+2581 after it
  std::vector<std::uint32_t> joins_;     ///< the same beyond ASCII, in order
};

}  // namespace tessera::text
