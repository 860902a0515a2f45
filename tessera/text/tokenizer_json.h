#pragma once
/// \file
/// Parses the tokenizer.json of Hugging Face `tokenizers` (version "1.0"), and writes it for byte-level BPE.

#include <tessera/base/value.h>
#include <tessera/text/added_tokens.h>
#include <tessera/text/bpe/bpe_model.h>
#include <tessera/text/tokenizer.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::text {

/// The contents of a GPT-2-like tokenizer.json. Tokens are spelt in the byte alphabet.
struct BpeFile {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  ///< ordered by id
  std::vector<std::pair<std::string, std::string>> merges;       ///< by rank
  std::vector<std::pair<std::string, std::int32_t>> specials;    ///< added special tokens
};

/// The file in Hugging Face's format (ByteLevel pre-tokenizer and decoder, no prefix space).
std::string tokenizer_json(const BpeFile& file);

/// The variable parts of a byte-level BPE file. A null Value becomes null in the file.
struct BpeDocument {
  std::vector<Value> added_tokens;
  Value normalizer, pre_tokenizer, post_processor, decoder;
  bool ignore_merges = false;
  std::vector<Value::Member> vocabulary;  ///< spelling -> id
  std::vector<Value> merges;              ///< [left, right]
};

/// The whole document, with keys in Hugging Face's order.
Value tokenizer_document(BpeDocument parts);

/// Writes tokenizer.json (these bytes) and tokenizer_config.json into an existing folder.
void write_tokenizer_files(const std::string& folder, std::string_view tokenizer_json, std::string_view end_of_text);

/// Creates a tokenizer from the text of a tokenizer.json; `path` names it in messages. Unsupported contents (components
/// that Hugging Face's library does not have, BPE dropout, some regular expressions) throw InputError with
/// file:line:column, the component and the supported ones. `truncation` and `padding` are not applied, which is logged.
/// `config_json`: the tokenizer_config.json next to it, which save() writes again; empty: save() creates one.
std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string text, const std::string& path,
                                                      std::string config_json = "");

}  // namespace tessera::text
