#pragma once
/// \file
/// Parses any tokenizer.json. Each function reads one component, or throws InputError with file:line:column.

#include <tessera/base/value.h>
#include <tessera/text/pipeline/decoder.h>
#include <tessera/text/pipeline/pipeline_tokenizer.h>
#include <tessera/text/pipeline/word_cutter.h>
#include <tessera/text/pipeline/word_model.h>
#include <tessera/text/token_table.h>

#include <memory>
#include <string>
#include <unordered_map>

namespace tessera::text {

/// Supports every pre_tokenizer of Hugging Face `tokenizers` (docs/tokenizers.md); null: a text is one word.
WordCutter read_word_cutter(const Value& value);

/// Supports every decoder (docs/tokenizers.md); null: tokens are joined with blanks.
Decoder read_decoder(const Value& value);

/// Adds the tokens of a `model` to the table and to `ids`, and creates the model: BPE, Unigram, WordLevel or WordPiece.
/// A missing type is inferred from the members.
std::unique_ptr<const WordModel> read_word_model(const Value& model, TokenTable& table,
                                                 std::unordered_map<std::string, std::int32_t>& ids);
/// The type of a `model`, inferred if missing.
std::string model_type(const Value& model);

/// Reads the whole file, except tokenizer_config.json and the bytes to save.
PipelineParts read_pipeline(const Value& root);

}  // namespace tessera::text
