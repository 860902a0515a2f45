#pragma once
/// \file
/// BERT's tokenizer as specified by tokenizer.json or vocab.txt: added tokens and normalization, words delimited by
/// white space and punctuation, then WordPiece. It also provides what encoders need in addition: special tokens around
/// one or two texts, and token types.

#include <tessera/text/added_tokens.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/tokenizer.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/wordpiece/wordpiece.h>
#include <tessera/text/wordpiece/wordpiece_decoder.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::text {

/// The special tokens by role; nullopt if not in the vocabulary.
struct SpecialTokens {
  std::optional<std::int32_t> cls, sep, pad, mask, unknown;
};

struct WordPieceParts {
  explicit WordPieceParts(WordPiece model) : model(std::move(model)) {}

  WordPiece model;
  WordPieceDecoder decoder;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PostProcessor post_processor;
  SpecialTokens special;
  std::unordered_map<std::string, std::int32_t> ids;  ///< ids of the vocabulary
  std::vector<std::string> contents;                  ///< by id
  std::vector<bool> exists;                           ///< by id
  std::string json, config_json;                      ///< the bytes that save() writes
};

/// Immutable: any number of threads may use one object at the same time. end_of_text() returns nullopt: BERT has no
/// such token.
class WordPieceTokenizer final : public Tokenizer {
 public:
  /// Throws InputError for conflicting added tokens.
  explicit WordPieceTokenizer(WordPieceParts parts);
  ~WordPieceTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view utf8) const override;
  /// Joins words with blanks, as Hugging Face's decoder does, so the result may differ from the original text.
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(parts_.contents.size()); }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  std::vector<std::int32_t> prefix() const override { return parts_.post_processor.prefix; }
  std::vector<std::int32_t> suffix() const override { return parts_.post_processor.suffix; }
  std::optional<std::int32_t> token_id(std::string_view content) const override;
  void save(const std::string& folder) const override;

  Encoding encode_text(std::string_view utf8, std::int64_t most_ids = 0) const override;
  Encoding encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids = 0) const override;
  const SpecialTokens& special() const { return parts_.special; }
  /// True for [CLS], [SEP] and the other special tokens, which are never masked.
  bool is_special(std::int32_t id) const override;

 private:
  struct Memory;

  WordPieceParts parts_;
  AddedTokens added_;
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::vector<bool> special_;  // by id
  std::unique_ptr<Memory> memory_;
};

}  // namespace tessera::text
