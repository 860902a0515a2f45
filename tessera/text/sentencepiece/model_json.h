#pragma once
/// \file
/// SentencePiece's model as a tokenizer.json.

#include <tessera/base/value.h>
#include <tessera/text/sentencepiece/model_file.h>

#include <string>

namespace tessera::text {

/// The tokenizer.json of a tokenizer.model. Ids are the positions of pieces; what tokenizer_config.json (`config`;
/// null: none) adds is added (`added_tokens_decoder`; `add_bos_token`, `add_eos_token`, which are true for Llama's and
/// T5's classes where nothing is said). Pairs for byte-pair encoding are all cuts of a piece into two pieces, ranked by
/// the score of the piece. `path` names the file in messages. Throws InputError for models of whole words or
/// characters, and for tokenizer classes of transformers that number pieces otherwise.
Value tokenizer_json_of(const SentencePieceModel& model, const Value& config, const std::string& path);

}  // namespace tessera::text
