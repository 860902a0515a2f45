#pragma once
/// \file
/// Byte-level BPE in files older or simpler than tokenizer.json, which become one: vocab.json with merges.txt (GPT-2's,
/// RoBERTa's), and tiktoken's (a token in base64 and its rank on each line; Llama 3's and Qwen's).

#include <tessera/base/value.h>

#include <string>
#include <string_view>

namespace tessera::text {

/// `config`: tokenizer_config.json, or null. It may say add_prefix_space and name special tokens, which the vocabulary
/// holds (or added_tokens_decoder adds). RoBERTa's classes put <s> and </s> around texts. `folder` names the files in
/// messages. Throws InputError.
Value tokenizer_json_of_merges(const Value& vocabulary, std::string_view merges, const Value& config,
                               const std::string& folder);

/// Ranks are ids; the merges are the pairs that byte-pair encoding over ranks joins last within each token. Words are
/// those of cl100k_base, which Llama 3 shares (the file does not say). Special tokens are those of added_tokens_decoder
/// in tokenizer_config.json. `path` names the file in messages. Throws InputError naming the line.
Value tokenizer_json_of_tiktoken(std::string_view ranks, const Value& config, const std::string& path);

/// Whether a file holds tiktoken's lines: base64, a blank, a number.
bool looks_like_tiktoken(std::string_view bytes);

}  // namespace tessera::text
