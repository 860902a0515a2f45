#pragma once
/// \file
/// Converts byte-level BPE files in older or simpler formats to a tokenizer.json: vocab.json with merges.txt (GPT-2,
/// RoBERTa), and tiktoken's format (one token in base64 and its rank per line; Llama 3, Qwen).

#include <tessera/base/value.h>

#include <string>
#include <string_view>

namespace tessera::text {

/// `config`: tokenizer_config.json, or null. It may set add_prefix_space and name special tokens, which must be in the
/// vocabulary (or in added_tokens_decoder). RoBERTa's classes put <s> and </s> around texts. `folder` names the files
/// in messages. Throws InputError.
Value tokenizer_json_of_merges(const Value& vocabulary, std::string_view merges, const Value& config,
                               const std::string& folder);

/// Ranks are ids; the merges are the pairs that byte-pair encoding by rank joins last within each token. Words are
/// split as in cl100k_base and Llama 3 (the file does not specify it). Special tokens are those of added_tokens_decoder
/// in tokenizer_config.json. `path` names the file in messages. Throws InputError naming the line.
Value tokenizer_json_of_tiktoken(std::string_view ranks, const Value& config, const std::string& path);

/// Whether the bytes look like lines in tiktoken's format: base64, a blank, a number.
bool looks_like_tiktoken(std::string_view bytes);

}  // namespace tessera::text
