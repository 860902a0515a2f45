#pragma once
/// \file
/// text/bpe/: byte-level byte-pair encoding and its training.
///
/// Byte-level BPE as specified by tokenizer.json: added tokens and normalization, then splitting into words, then BPE
/// over each word's bytes.

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

/// The contents of a tokenizer.json needed for encoding, decoding and saving.
struct BpeParts {
  std::array<std::int32_t, 256> byte_ids{};  ///< BpeModel::no_token for bytes missing from the vocabulary
  BpeModel::Unknown unknown;                 ///< replacement for such bytes
  std::vector<Merge> merges;                 ///< by rank
  std::vector<std::string> bytes_of_id;      ///< the bytes that an id decodes to
  std::vector<bool> has_token;               ///< by id: vocabularies may have gaps
  std::unordered_map<std::string, std::int32_t> ids_of_bytes;  ///< the vocabulary entries spelt in the byte alphabet
  std::unordered_map<std::string, std::int32_t> other_ids;     ///< the other entries, by spelling
  bool ignore_merges = false;                                  ///< a word that is itself a token becomes that token
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<std::int32_t> prefix, suffix;  ///< ids that the post-processor adds
  std::optional<std::int32_t> end_of_turn;   ///< eos_token of tokenizer_config.json
  std::string json;                          ///< tokenizer.json as read
  std::string config_json;                   ///< tokenizer_config.json as read; empty: save() creates one
};

/// Throws InputError beginning with `path` for conflicting added tokens.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts, const std::string& path);

}  // namespace tessera::text
