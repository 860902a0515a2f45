#pragma once
/// \file
/// How tokens become text again: the `decoder` of a tokenizer.json. Each step takes the list of tokens that the step
/// before it made; at the end they are joined.

#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/wordpiece/wordpiece_decoder.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tessera::text {

enum class PlainDecoding {
  byte_level,     ///< the printable alphabet of bpe/byte_alphabet.h as bytes; tokens that are not spelt in it stay
  byte_fallback,  ///< runs of "<0xE2>" become characters, or U+FFFD for each byte where they are none
  fuse            ///< all tokens become one
};

/// Metaspace: the replacement becomes a blank, or nothing in the first token.
struct MetaspaceDecoding {
  std::string replacement = "\xE2\x96\x81";
  bool drops_first = true;  ///< the encoder prepends one
};

/// Strip: up to so many of a character are taken off the ends of each token.
struct StripDecoding {
  std::string content = " ";  ///< one character
  std::int64_t start = 0, stop = 0;
};

/// BPEDecoder: the mark of a word's end becomes a blank, in the last token nothing.
struct SuffixDecoding {
  std::string suffix = "</w>";
};

/// CTC: repeated tokens are one, padding vanishes.
struct CtcDecoding {
  std::string pad = "<pad>", delimiter = "|";
  bool cleanup = true;
};

using DecodingStep = std::variant<PlainDecoding, MetaspaceDecoding, StripDecoding, SuffixDecoding, CtcDecoding,
                                  WordPieceDecoder, ReplaceStep>;

/// Immutable in use; thread-safe.
struct Decoder {
  std::vector<DecodingStep> steps;
  bool joins_with_blanks = false;  ///< there is no decoder: tokens stand between blanks

  /// `raw_bytes`: bytes of byte_fallback that are no characters stay as they are, for a text that goes on.
  std::string decode(std::vector<std::string> tokens, bool raw_bytes = false) const;
};

}  // namespace tessera::text
