#pragma once
/// \file
/// Parses WordPiece tokenizers: tokenizer.json, and BERT's older vocab.txt.

#include <tessera/base/value.h>
#include <tessera/text/tokenizer.h>

#include <memory>
#include <string>
#include <string_view>

namespace tessera::text {

/// Whether a tokenizer.json contains a WordPiece model with BERT's pre-tokenizer and either its own decoder or none.
/// (For others see pipeline/.)
bool is_bert_wordpiece(const Value& root);

/// The tokenizer of such a file (a WordPieceTokenizer). `text`: the bytes of the file; `path` is for messages;
/// `config_json`: the tokenizer_config.json next to it, or "". As in transformers, its `do_lower_case`, `strip_accents`
/// and `tokenize_chinese_chars` override those of a BertNormalizer; differences are logged.
std::shared_ptr<const Tokenizer> read_wordpiece(const Value& root, std::string text, const std::string& path,
                                                std::string config_json);

/// The tokenizer.json that corresponds to BertTokenizer with vocab.txt (one token per line; the line number is the id)
/// and tokenizer_config.json ("": its defaults). Throws InputError naming `path` and the line.
std::string tokenizer_json_of_vocabulary(std::string_view vocabulary, const std::string& path,
                                         const std::string& config_json, const std::string& config_path);

}  // namespace tessera::text
