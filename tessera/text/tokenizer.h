#pragma once
/// \file
/// text/: tokenizers and their training; torch-free. This header: the interface that everyone uses.
///
/// Text is UTF-8. Where the input is not, every maximal ill-formed piece becomes U+FFFD before tokenization, which is
/// what Python's bytes.decode("utf-8", errors="replace") gives (the byte tokenizer takes bytes as they are). Token ids
/// are int32 and count from 0.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Ids as a model takes them.
struct Encoding {
  std::vector<std::int32_t> ids, types;  ///< two lists of the same length; types: which of two texts, 0 or 1
};

/// Immutable after loading: any number of threads may use one object at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of a text. Special tokens that occur literally in the text are recognised; none is added.
  virtual std::vector<std::int32_t> encode(std::string_view utf8) const = 0;

  /// The bytes that the ids stand for (special tokens included, by their content). One id may be a part of a character,
  /// so the result of a cut sequence need not be valid UTF-8. An id without a token throws InputError naming id,
  /// position and range.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// What `ids` add to a text whose last ids are `before`, as bytes: of SentencePiece's tokenizers the first token of a
  /// text loses its blank, which a text that goes on needs. A character of several byte tokens comes in pieces.
  virtual std::string decode_after(std::span<const std::int32_t> /*before*/, std::span<const std::int32_t> ids) const {
    return decode(ids);
  }

  /// Largest id + 1, added tokens included: the least number of rows of an embedding.
  virtual std::int64_t vocab_size() const = 0;

  /// What goes between documents: the id of <|endoftext|> or <|end_of_text|>, the first that the vocabulary has; where
  /// it has neither, end_of_turn().
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// What ends an answer: the id of tokenizer_config.json's `eos_token` (a text, or an object with `content`). Without
  /// one, end_of_text(). The two differ where a chat model was made from a base model: SmolLM2-Instruct's documents end
  /// with <|endoftext|>, its answers with <|im_end|>. Generation stops at either.
  virtual std::optional<std::int32_t> end_of_turn() const { return end_of_text(); }

  /// The ids that the post-processor puts before and after one text where Hugging Face's default call (with
  /// add_special_tokens) does: Llama-3's <|begin_of_text|>. encode() adds neither.
  virtual std::vector<std::int32_t> prefix() const { return {}; }
  virtual std::vector<std::int32_t> suffix() const { return {}; }

  /// One text between its special tokens (prefix() and suffix()). most_ids > 0: the text is cut at its end so that
  /// there are at most so many (at least the special ones).
  virtual Encoding encode_text(std::string_view utf8, std::int64_t most_ids = 0) const;
  /// Two texts for an encoder, a question and an answer, with the special tokens around them and their types; the
  /// longer one is cut first, then both alike (Hugging Face's longest_first). Throws InputError where the tokenizer has
  /// no template for two texts: WordPiece ones (BERT) have.
  virtual Encoding encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids = 0) const;

  /// The id of the added token with this content or, without one, of the vocabulary's token with this spelling in bytes
  /// ("<|im_end|>", " the"), whether or not encode() would ever give it.
  virtual std::optional<std::int32_t> token_id(std::string_view /*content*/) const { return std::nullopt; }

  /// True for an added token that is no text but a mark (tokenizer.json's "special"): <|endoftext|>.
  virtual bool is_special(std::int32_t /*id*/) const { return false; }

  /// Writes tokenizer.json and tokenizer_config.json into an existing folder so that transformers.AutoTokenizer loads
  /// the same tokenizer. A tokenizer that was loaded from files writes the bytes it was loaded from. Throws Error on
  /// I/O failure.
  virtual void save(const std::string& folder) const = 0;
};

/// "byte" (256 bytes and <|endoftext|>, no file), a folder that holds a tokenizer's files, or such a file:
/// tokenizer.json, SentencePiece's or tiktoken's .model, vocab.txt, vocab.json beside merges.txt, .tiktoken
/// (docs/tokenizers.md).
/// Throws InputError with file:line:column for a missing, malformed or unsupported one.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace tessera::text
