#pragma once
/// \file
/// Converts SentencePiece's model to a tokenizer.json.

#include <tessera/base/value.h>
#include <tessera/text/sentencepiece/model_file.h>

#include <string>

namespace tessera::text {

/// The tokenizer.json of a tokenizer.model. Ids are the indices of pieces. tokenizer_config.json (`config`; null: none)
/// can add tokens (`added_tokens_decoder`) and set `add_bos_token` and `add_eos_token`, whose defaults are true for
/// Llama's and T5's classes, respectively. Pairs for byte-pair encoding are all divisions of a piece into two pieces,
/// ranked by the piece's score. `path` names the file in messages. Throws InputError for models of type word or char,
/// and for tokenizer classes of transformers that number pieces differently.
Value tokenizer_json_of(const SentencePieceModel& model, const Value& config, const std::string& path);

}  // namespace tessera::text
