#pragma once
/// \file
/// Encodes a corpus: texts to vectors, on several teams of threads of one process.

#include <ATen/core/Tensor.h>

#include <tessera/models/bert/sentence_encoder.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

struct EmbedOptions {
  std::int64_t batch_size = 32;  ///< texts per batch of a replica
  int replicas = 1;              ///< teams of threads; they share the weights
  int threads_per_replica = 0;   ///< 0: LibTorch's threads divided by replicas, at least 1
};

/// Counts for the summary line.
struct EmbedCounts {
  /// cut: number of texts truncated to the encoder's maximum length
  std::int64_t texts = 0, tokens = 0, padded_tokens = 0, cut = 0;
};

/// Embeds texts part by part. May be used by one caller at a time.
class Embedder {
 public:
  /// Throws InputError for options that are not positive, or a tokenizer that does not match the encoder.
  Embedder(std::shared_ptr<models::SentenceEncoder> encoder, std::shared_ptr<const text::Tokenizer> tokenizer,
           EmbedOptions options);
  ~Embedder();

  /// Returns fp32 [texts, C] in the order of the texts, on the CPU. Texts of similar length share batches to reduce
  /// padding; each vector depends only on its text, up to rounding in the batch's products. Calls `done` with the
  /// number of finished texts, from any thread but never concurrently.
  at::Tensor embed(std::span<const std::string_view> texts, const std::function<void(std::int64_t)>& done = {});
  const EmbedCounts& counts() const { return counts_; }
  int threads_per_replica() const;

 private:
  struct Teams;

  std::shared_ptr<models::SentenceEncoder> encoder_;
  std::shared_ptr<const text::WordPieceTokenizer> tokenizer_;
  EmbedOptions options_;
  EmbedCounts counts_;
  std::unique_ptr<Teams> teams_;
};

}  // namespace tessera::train
