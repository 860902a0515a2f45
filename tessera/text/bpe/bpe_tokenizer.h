#pragma once
/// \file
/// text/bpe/: byte-level byte-pair encoding, and its training.
///
/// Byte-level BPE as tokenizer.json describes it: added tokens and normalization, then splitting into words, then BPE
/// over the bytes of each.

#include <tessera/text/added_tokens.h>
#include <tessera/text/bpe/bpe_model.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/pre_tokenizer.h>
#include <tessera/text/tokenizer.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

/// Everything that a tokenizer.json says and that encoding, decoding and saving need.
struct BpeParts {
  std::array<std::int32_t, 256> byte_ids{};  ///< BpeModel::no_token where the vocabulary lacks a byte
  BpeModel::Unknown unknown;                 ///< what such bytes become
  std::vector<Merge> merges;                 ///< by rank
  std::vector<std::string> bytes_of_id;      ///< what an id decodes to
  std::vector<bool> has_token;               ///< by id: vocabularies may have holes
  std::unordered_map<std::string, std::int32_t>
      ids_of_bytes;                                         ///< the vocabulary, where it is spelt in the byte alphabet
  std::unordered_map<std::string, std::int32_t> other_ids;  ///< and the rest of it, by spelling
  bool ignore_merges = false;                               ///< a word that is a token is that token
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<std::int32_t> prefix, suffix;  ///< ids of the post-processor
  std::optional<std::int32_t> end_of_turn;   ///< eos_token of tokenizer_config.json
  std::string json;                          ///< tokenizer.json as it was read
  std::string config_json;                   ///< tokenizer_config.json as it was read; empty: save() makes one
};

/// Throws InputError beginning with `path` for contradicting added tokens.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts, const std::string& path);

}  // namespace tessera::text
