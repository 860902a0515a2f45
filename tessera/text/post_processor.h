#pragma once
/// \file
/// What is put around one text and around two: the `post_processor` of a tokenizer.json.

#include <tessera/text/tokenizer.h>

#include <cstdint>
#include <vector>

namespace tessera::text {

/// One place of a template: a text, or special tokens.
struct TemplatePiece {
  char text = 0;                  ///< 'A', 'B' or, for special tokens, 0
  std::vector<std::int32_t> ids;  ///< ids of special tokens
  std::int32_t type = 0;          ///< token type id
};

/// What is put around one text, and around two.
struct PostProcessor {
  std::vector<std::int32_t> prefix, suffix;  ///< what stands around the tokens of one text
  std::vector<TemplatePiece> single{{'A', {}, 0}}, pair{{'A', {}, 0}, {'B', {}, 1}};
};

/// The ids of one text between its special tokens. most_ids > 0: the text is cut at its end so that there are at most
/// so many (at least the special ones).
Encoding encode_one(const PostProcessor& around, std::vector<std::int32_t> ids, std::int64_t most_ids);

/// The ids of two texts; the longer one is cut first, then both alike (Hugging Face's longest_first).
Encoding encode_two(const PostProcessor& around, std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                    std::int64_t most_ids);

}  // namespace tessera::text
