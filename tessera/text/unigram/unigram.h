#pragma once
/// \file
/// text/unigram/: the unigram language model of SentencePiece (T5, XLM-R, ALBERT).
///
/// A word is cut into the tokens whose scores (log probabilities) have the greatest sum, found by Viterbi's algorithm
/// over all segmentations. Kudo 2018, arXiv:1804.10959; ties and unknown characters are handled as in Hugging Face's
/// models.Unigram.

#include <tessera/text/pipeline/word_model.h>
#include <tessera/text/unigram/trie.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

/// The model of a tokenizer.json.
struct UnigramParts {
  std::vector<std::pair<std::string, double>> pieces;  ///< spelling and score; the index is the id
  std::optional<std::int32_t> unknown;
  bool byte_fallback = false;  ///< "<0xE2>" ... instead of the unknown token, if all bytes have a token
};

class Unigram final : public WordModel {
 public:
  /// If pieces are equal, the last one counts.
  explicit Unigram(const UnigramParts& parts);

  /// O(length x longest piece).
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  void push_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  Trie trie_;                   ///< the pieces; values are ids
  std::vector<double> scores_;  ///< by id
  std::array<std::int32_t, 256> bytes_{};
  std::optional<std::int32_t> unknown_;
  bool byte_fallback_;
  double unknown_score_ = 0;
};

}  // namespace tessera::text
