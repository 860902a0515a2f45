#pragma once
/// \file
/// Converts tokens back to text: the `decoder` of a tokenizer.json. Each step processes the list of tokens from the
/// previous step; at the end the tokens are joined.

#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/wordpiece/wordpiece_decoder.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tessera::text {

enum class PlainDecoding {
  byte_level,     ///< the printable alphabet of bpe/byte_alphabet.h to bytes; tokens not spelt in it are unchanged
  byte_fallback,  ///< runs of tokens such as "<0xE2>" to characters, or to one U+FFFD per byte if they are ill-formed
  fuse            ///< joins all tokens into one
};

/// Metaspace: the replacement becomes a blank; at the start of the first token it is removed.
struct MetaspaceDecoding {
  std::string replacement = "\xE2\x96\x81";
  bool drops_first = true;  ///< the encoder prepends a blank
};

/// Strip: removes up to this many copies of a character from the ends of each token.
struct StripDecoding {
  std::string content = " ";  ///< one character
  std::int64_t start = 0, stop = 0;
};

/// BPEDecoder: the end-of-word suffix becomes a blank, except in the last token, where it is removed.
struct SuffixDecoding {
  std::string suffix = "</w>";
};

/// CTC: collapses repeated tokens, drops padding.
struct CtcDecoding {
  std::string pad = "<pad>", delimiter = "|";
  bool cleanup = true;
};

using DecodingStep = std::variant<PlainDecoding, MetaspaceDecoding, StripDecoding, SuffixDecoding, CtcDecoding,
                                  WordPieceDecoder, ReplaceStep>;

/// decode() is thread-safe.
struct Decoder {
  std::vector<DecodingStep> steps;
  bool joins_with_blanks = false;  ///< no decoder: tokens are joined with blanks

  /// `raw_bytes`: keeps bytes of byte_fallback that do not form characters, for a text that is to be continued.
  std::string decode(std::vector<std::string> tokens, bool raw_bytes = false) const;
};

}  // namespace tessera::text
