#pragma once
/// \file
/// text/sentencepiece/: converts the files of SentencePiece (tokenizer.model) to tokenizer.json.
///
/// This header: parses such a file. It is a protobuf message (sentencepiece_model.proto of that project); the few
/// fields needed here are parsed without a protobuf library.

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
  std::vector<SentencePiece> pieces;  ///< the index is the id
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool blanks_end_words = false;                 ///< treat_whitespace_as_suffix
  std::int64_t unknown = 0, begin = 1, end = 2;  ///< ids; negative: none
  std::string charsmap;                          ///< unicode/charsmap.h; empty: none
  bool add_dummy_prefix = true;                  ///< puts a blank before the text
  bool remove_extra_whitespaces = true;          ///< removes blanks at the ends, and repeated blanks inside
  bool escape_whitespaces = true;                ///< replaces blanks by U+2581
};

/// Parses the bytes of a tokenizer.model; `path` begins every message. The bytes are not trusted. Throws InputError.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace tessera::text
