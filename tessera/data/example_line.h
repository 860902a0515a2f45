#pragma once
/// \file
/// From one line of a .jsonl to the ids of an example.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/data/examples.h>
#include <tessera/text/tokenizer.h>

namespace tessera::data {

enum class ExampleKind { text, prompt_completion, messages };
const char* name_of(ExampleKind kind);

struct ExampleLine {
  ExampleKind kind = ExampleKind::text;
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;
  std::uint64_t text_bytes = 0, text_tokens = 0;
  bool cut = false;
  std::vector<std::string> unused_fields;

  std::int64_t scored_tokens() const;  ///< at positions >= 1
};

/// The ids of a piece of a conversation's text, instead of encoder.encode(piece, first).
using EncodePiece =
    std::function<std::vector<std::int32_t>(std::string_view piece, bool first, const text::ChatEncoder& encoder)>;

/// Throws InputError with file:line:column. Any number of threads may call it.
ExampleLine encode_example(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                           const EncodePiece& encode = {});

}  // namespace tessera::data
