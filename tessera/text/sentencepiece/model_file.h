#pragma once
/// \file
/// text/sentencepiece/: the files of SentencePiece (tokenizer.model), which become a tokenizer.json.
///
/// This header: what such a file says. It is a protobuf message (sentencepiece_model.proto of that project);
/// the few fields that matter here are read by hand.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

struct SentencePiece {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string spelling;
  double score = 0;
  Type type = Type::normal;
};

struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };
  std::vector<SentencePiece> pieces;  ///< the position is the id
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool blanks_end_words = false;                 ///< treat_whitespace_as_suffix
  std::int64_t unknown = 0, begin = 1, end = 2;  ///< ids; negative: there is none
  std::string charsmap;                          ///< unicode/charsmap.h; empty: none
  bool add_dummy_prefix = true;                  ///< a blank before the text
  bool remove_extra_whitespaces = true;          ///< at the ends, and all but one inside
  bool escape_whitespaces = true;                ///< blanks become U+2581
};

/// Reads the bytes of a tokenizer.model; `path` begins every message. Nothing in them is trusted. Throws InputError.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace tessera::text
