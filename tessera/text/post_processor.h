#pragma once
/// \file
/// Adds special tokens around one or two texts: the `post_processor` of a tokenizer.json.

#include <tessera/text/tokenizer.h>

#include <cstdint>
#include <vector>

namespace tessera::text {

/// One element of a template: a text, or special tokens.
struct TemplatePiece {
  char text = 0;                  ///< 'A', 'B' or, for special tokens, 0
  std::vector<std::int32_t> ids;  ///< ids of special tokens
  std::int32_t type = 0;          ///< token type id
};

/// The templates for one text and for two.
struct PostProcessor {
  std::vector<std::int32_t> prefix, suffix;  ///< ids before and after the tokens of one text
  std::vector<TemplatePiece> single{{'A', {}, 0}}, pair{{'A', {}, 0}, {'B', {}, 1}};
};

/// The ids of one text with its special tokens. most_ids > 0: the text is truncated at the end so that there are at
/// most this many ids (but never fewer than the special ones).
Encoding encode_one(const PostProcessor& around, std::vector<std::int32_t> ids, std::int64_t most_ids);

/// The ids of two texts with their special tokens; the longer one is truncated first, then both equally (Hugging Face's
/// longest_first).
Encoding encode_two(const PostProcessor& around, std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                    std::int64_t most_ids);

}  // namespace tessera::text
