#pragma once
/// \file
/// Byte-level BPE as tokenizer.json describes it: added tokens, then splitting into words, then BPE over the bytes of
/// each.

#include <tessera/text/added_tokens.h>
#include <tessera/text/bpe_model.h>
#include <tessera/text/regex_split.h>
#include <tessera/text/tokenizer.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

/// How text becomes words: Split by a pattern if there is one, then ByteLevel's prefix space and its own (GPT-2's)
/// pattern.
struct WordRule {
  std::optional<RegexSplitter> pattern;
  bool add_prefix_space = false;  ///< text between added tokens that does not begin with ' ' gets one
  bool gpt2_pattern = true;       ///< false without `pattern`: the whole text is one word
};

/// Everything that a tokenizer.json says and that encoding, decoding and saving need.
struct BpeParts {
  std::array<std::int32_t, 256> byte_ids{};  ///< BpeModel::no_token where the vocabulary lacks a byte
  std::vector<Merge> merges;                 ///< by rank
  std::vector<std::string> bytes_of_id;      ///< what an id decodes to
  std::vector<bool> has_token;               ///< by id: vocabularies may have holes
  std::unordered_map<std::string, std::int32_t>
      whole_words;  ///< for ignore_merges: a word that is a token is that token
  std::vector<AddedToken> added;
  WordRule words;
  std::string json;         ///< tokenizer.json as it was read
  std::string config_json;  ///< tokenizer_config.json as it was read; empty: save() makes one
};

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace tessera::text
