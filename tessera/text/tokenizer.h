#pragma once
/// \file
/// text/: tokenizers and their training; torch-free. This header: the common interface.
///
/// Text is UTF-8. In ill-formed input every maximal ill-formed piece becomes U+FFFD before tokenization, as with
/// Python's bytes.decode("utf-8", errors="replace") (the byte tokenizer keeps all bytes). Token ids are int32 and count
/// from 0.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Model input: ids and types.
struct Encoding {
  std::vector<std::int32_t> ids, types;  ///< same length; types: index of the text, 0 or 1
};

/// Immutable after loading: any number of threads may use one object at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of a text. Special tokens that occur literally in the text are recognised, but none are added.
  virtual std::vector<std::int32_t> encode(std::string_view utf8) const = 0;

  /// The bytes that the ids decode to (including special tokens, by their content). A single id may represent part of a
  /// character, so the result for a truncated sequence need not be valid UTF-8. An id without a token throws InputError
  /// naming id, position and range.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// The bytes that `ids` add to a text whose last ids are `before`. SentencePiece's tokenizers drop the blank of a
  /// text's first token, but a continued text needs it. A character that consists of several byte tokens arrives in
  /// pieces.
  virtual std::string decode_after(std::span<const std::int32_t> /*before*/, std::span<const std::int32_t> ids) const {
    return decode(ids);
  }

  /// Largest id + 1, including added tokens: the minimum number of rows of an embedding.
  virtual std::int64_t vocab_size() const = 0;

  /// The separator of documents: the id of <|endoftext|> or, if the vocabulary lacks it, of <|end_of_text|>; if it has
  /// neither, end_of_turn().
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// The end of an answer: the id of tokenizer_config.json's `eos_token` (a text, or an object with `content`), or
  /// end_of_text() if not set. The two ids differ for chat models made from a base model: SmolLM2-Instruct's documents
  /// end with <|endoftext|>, its answers with <|im_end|>. Generation stops at either.
  virtual std::optional<std::int32_t> end_of_turn() const { return end_of_text(); }

  /// The ids that the post-processor puts before and after one text in Hugging Face's default call (with
  /// add_special_tokens), such as Llama-3's <|begin_of_text|>. encode() adds neither.
  virtual std::vector<std::int32_t> prefix() const { return {}; }
  virtual std::vector<std::int32_t> suffix() const { return {}; }

  /// One text with its special tokens (prefix() and suffix()). most_ids > 0: the text is truncated at the end so that
  /// there are at most this many ids (but never fewer than the special ones).
  virtual Encoding encode_text(std::string_view utf8, std::int64_t most_ids = 0) const;
  /// Two texts for an encoder, e.g. a question and an answer, with their special tokens and types; the longer one is
  /// truncated first, then both equally (Hugging Face's longest_first). Throws InputError if the tokenizer has no
  /// template for two texts; WordPiece tokenizers (BERT) have one.
  virtual Encoding encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids = 0) const;

  /// The id of the added token with this content or else of the vocabulary's token with this spelling in bytes
  /// ("<|im_end|>", " the"), even if encode() never produces it.
  virtual std::optional<std::int32_t> token_id(std::string_view /*content*/) const { return std::nullopt; }

  /// True for an added token that is a marker rather than text (tokenizer.json's "special"), such as <|endoftext|>.
  virtual bool is_special(std::int32_t /*id*/) const { return false; }

  /// Writes tokenizer.json and tokenizer_config.json into an existing folder so that transformers.AutoTokenizer loads
  /// the same tokenizer. A tokenizer loaded from files writes the original bytes. Throws Error on I/O failure.
  virtual void save(const std::string& folder) const = 0;
};

/// Loads "byte" (256 bytes and <|endoftext|>, without a file), a folder that contains a tokenizer's files, or one such
/// file: tokenizer.json, SentencePiece's or tiktoken's .model, vocab.txt, vocab.json next to merges.txt, .tiktoken
/// (docs/tokenizers.md). Throws InputError with file:line:column for a missing, malformed or unsupported one.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace tessera::text
