#pragma once
/// \file
/// Reading any tokenizer.json. Each function reads one component, or throws InputError with file:line:column.

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

/// Every pre_tokenizer of Hugging Face `tokenizers` (docs/tokenizers.md); null: a text is one word.
WordCutter read_word_cutter(const Value& value);

/// Every decoder (docs/tokenizers.md); null: tokens stand between blanks.
Decoder read_decoder(const Value& value);

/// Enters the tokens of a `model` into the table and `ids`, and makes the model: BPE, Unigram, WordLevel, WordPiece.
/// Where the type is left out, it follows from the members.
std::unique_ptr<const WordModel> read_word_model(const Value& model, TokenTable& table,
                                                 std::unordered_map<std::string, std::int32_t>& ids);
/// The type of a `model`, as above.
std::string model_type(const Value& model);

/// The whole file except tokenizer_config.json and the bytes to save.
PipelineParts read_pipeline(const Value& root);

}  // namespace tessera::text
