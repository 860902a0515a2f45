#pragma once
/// \file
/// A tokenizer for any tokenizer.json, with all steps: added tokens and normalization, cutting into words, a model for
/// words, post-processing, and decoding. Byte-level BPE and BERT's WordPiece have faster implementations of their own
/// (bpe/, wordpiece/).

#include <tessera/text/added_tokens.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/pipeline/decoder.h>
#include <tessera/text/pipeline/word_cutter.h>
#include <tessera/text/pipeline/word_model.h>
#include <tessera/text/post_processor.h>
#include <tessera/text/tokenizer.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

struct PipelineParts {
  Normalizer normalizer;
  std::vector<AddedToken> added;
  WordCutter cutter;
  std::unique_ptr<const WordModel> model;
  PostProcessor post_processor;
  Decoder decoder;
  std::unordered_map<std::string, std::int32_t> ids;  ///< the vocabulary by spelling
  std::vector<std::string> contents;                  ///< by id
  std::vector<bool> exists;                           ///< by id: vocabularies may have gaps
  std::optional<std::int32_t> end_of_turn;            ///< eos_token of tokenizer_config.json
  std::string json, config_json;                      ///< the bytes that save() writes
};

/// Throws InputError beginning with `path` for conflicting added tokens.
std::shared_ptr<const Tokenizer> make_pipeline_tokenizer(PipelineParts parts, const std::string& path);

}  // namespace tessera::text
