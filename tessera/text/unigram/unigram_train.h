#pragma once
/// \file
/// Training of a unigram language model (Kudo 2018, arXiv:1804.10959), by the method of SentencePiece and of Hugging
/// Face's UnigramTrainer: from many pieces, expectation-maximisation gives each a probability, those whose loss costs
/// the text least are taken out, and so on.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::text {

struct UnigramTrainOptions {
  std::int64_t vocab_size = 8000;                                        ///< special tokens, characters, pieces
  std::vector<std::string> special_tokens = {"<pad>", "</s>", "<unk>"};  ///< T5's; the last one is the unknown token
  std::int64_t longest_piece = 16;                                       ///< characters
  std::int64_t seed_pieces = 1'000'000;                                  ///< to begin with
  double shrinking_factor = 0.75;                                        ///< share that a round of pruning leaves
  int sub_iterations = 2;  ///< steps of expectation-maximisation in each round
  int threads = 1;
  std::function<void(const char* phase, std::int64_t done, std::int64_t of)> progress = {};  ///< "bytes", "pruning"
};

/// The tokenizer.json of Hugging Face's SentencePieceUnigramTokenizer: Nmt, NFKC, runs of blanks as one, Metaspace.
/// Deterministic, whatever the threads. Throws InputError where vocab_size leaves no room for special tokens and
/// characters, or there is no text.
std::string train_unigram(const std::vector<std::string>& texts, const UnigramTrainOptions& options);

}  // namespace tessera::text
