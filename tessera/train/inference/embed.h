#pragma once
/// \file
/// Encoding a corpus: texts to vectors, on several teams of threads of one process.

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
  std::int64_t batch_size = 32;  ///< texts at once, per replica
  int replicas = 1;              ///< teams of threads; they share the weights
  int threads_per_replica = 0;   ///< 0: LibTorch's threads shared out, at least 1
};

/// What was done, for the last line.
struct EmbedCounts {
  std::int64_t texts = 0, tokens = 0, padded_tokens = 0, cut = 0;  ///< cut: texts longer than the encoder takes
};

/// Embeds texts part by part. One caller at a time.
class Embedder {
 public:
  /// Throws InputError for options that are not positive, or a tokenizer that does not fit the encoder.
  Embedder(std::shared_ptr<models::SentenceEncoder> encoder, std::shared_ptr<const text::Tokenizer> tokenizer,
           EmbedOptions options);
  ~Embedder();

  /// fp32 [texts, C] in the order of the texts, on the CPU. Texts of like length share batches, so that little is
  /// padding; each vector depends on its text only, up to the rounding of the batch's products. `done` is told the
  /// number of texts that are, from any thread but one at a time.
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
