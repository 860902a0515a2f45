#pragma once
/// \file
/// Training of BERT's WordPiece, as Hugging Face's WordPieceTrainer has it: byte-pair encoding over characters, whose
/// tokens inside words begin with "##"; the merges are dropped, the vocabulary stays.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::text {

struct WordPieceTrainOptions {
  std::int64_t vocab_size = 30000;     ///< special tokens, characters (at a word's begin and inside), then merges
  std::int64_t min_frequency = 0;      ///< pairs seen less often are not joined
  std::int64_t limit_alphabet = 1000;  ///< so many characters, the most frequent; words with others are [UNK]
  bool lowercase = false;              ///< uncased: texts are lowercased, and accents taken off
  int threads = 1;
  std::function<void(const char* phase, std::int64_t done, std::int64_t of)> progress = {};  ///< "bytes", "merges"
};

/// The tokenizer.json of BertTokenizer ([PAD] [UNK] [CLS] [SEP] [MASK] are ids 0 to 4, then characters in the order of
/// code points, then "##" characters in the order of code points, then merges). Deterministic. Throws InputError where
/// vocab_size leaves no room for the alphabet, or there is no text.
std::string train_wordpiece(const std::vector<std::string>& texts, const WordPieceTrainOptions& options);

}  // namespace tessera::text
