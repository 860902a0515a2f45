#pragma once
/// \file
/// Encodes one normalized record (corpus/columns.h) into the ids of an example.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/data/examples.h>
#include <tessera/text/tokenizer.h>

namespace tessera::data {

enum class ExampleKind { text, prompt_completion, messages, tokens, labelled_tokens };
const char* name_of(ExampleKind kind);

struct ExampleLine {
  ExampleKind kind = ExampleKind::text;
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;
  std::uint64_t text_bytes = 0, text_tokens = 0;
  bool cut = false;
  std::size_t ends_before = 0;             ///< number of leading tokens from the tokenizer's prefix
  std::vector<std::string> unused_fields;  ///< fields that the chat template does not read, such as "messages.weight"
  std::string remark;                      ///< warning about the record; the same problem always has the same text

  std::int64_t scored_tokens() const;  ///< at positions >= 1
};

/// Encodes a piece of a conversation's text, in place of encoder.encode(piece, first).
using EncodePiece =
    std::function<std::vector<std::int32_t>(std::string_view piece, bool first, const text::ChatEncoder& encoder)>;

/// Throws InputError with file:line:column, and corpus::LeftOut if there is nothing to learn from the record. Any
/// number of threads may call it.
ExampleLine encode_example(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                           const EncodePiece& encode = {});

/// The same for a prompt and one answer of a pair, of any length: the whole answer is scored, except whitespace after
/// its last special token.
ExampleLine encode_answer(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options);

}  // namespace tessera::data
