#pragma once
/// \file
/// Trains byte-level BPE with GPT-2's word split. The result has the same merges, in the same order, as Hugging Face's
/// BpeTrainer.

#include <tessera/text/tokenizer_json.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::text {

struct BpeTrainOptions {
  std::int64_t vocab_size = 32000;  ///< special tokens, 256 bytes, then merges
  std::int64_t min_frequency = 0;   ///< minimum frequency: rarer pairs are not joined
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int threads = 1;  ///< for counting words
  /// Optional; called occasionally with (done, of), in bytes while counting and then in merges.
  std::function<void(const char* phase, std::int64_t done, std::int64_t of)> progress;
};

/// Learns merges from texts (each one document; ill-formed UTF-8 is repaired as by encode()). Ids: special tokens in
/// the given order, the 256 bytes in the order of their spellings' code points, merges by rank. Deterministic: the most
/// frequent pair wins, and on ties the pair with the smaller ids (tokenizers, models/bpe/trainer.rs). Returns fewer
/// merges if the text has no more. Throws InputError when vocab_size has no room for the bytes and special tokens, or
/// the texts are empty.
BpeFile train_bpe(const std::vector<std::string>& texts, const BpeTrainOptions& options);

}  // namespace tessera::text
