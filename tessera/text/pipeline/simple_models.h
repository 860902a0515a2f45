#pragma once
/// \file
/// The simple models: WordLevel, where a word is one token, and WordPiece's longest matches.

#include <tessera/text/pipeline/word_model.h>
#include <tessera/text/wordpiece/wordpiece.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace tessera::text {

/// WordLevel: each word is a token or is unknown.
class WordLevelModel final : public WordModel {
 public:
  WordLevelModel(std::unordered_map<std::string, std::int32_t> ids, std::optional<std::int32_t> unknown)
      : ids_(std::move(ids)), unknown_(unknown) {}
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
  std::optional<std::int32_t> unknown_;
};

/// WordPiece with any normalizer, pre-tokenizer and decoder. (For BERT's own components see
/// wordpiece/wordpiece_tokenizer.h.)
class WordPieceModel final : public WordModel {
 public:
  explicit WordPieceModel(WordPiece model) : model_(std::move(model)) {}
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override {
    model_.encode_word(word, ids);
  }

 private:
  WordPiece model_;
};

}  // namespace tessera::text
