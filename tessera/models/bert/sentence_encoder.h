#pragma once
/// \file
/// Converts texts to vectors: an encoder, pooling over its tokens and normalization, as specified by
/// sentence-transformers' folders (modules.json, 1_Pooling/config.json, sentence_bert_config.json).

#include <tessera/models/bert/bert.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::models {

/// How the vectors of a text's tokens are combined: their mean, the first one ([CLS]), the maximum of each component.
enum class Pooling { mean, cls, max };

struct SentenceOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;       ///< to length 1
  std::int64_t max_length = 0;  ///< tokens per text, including special ones; longer texts are truncated
};

/// Reads the options of a folder; for a plain model folder: mean pooling, not normalized, as in sentence-transformers.
/// `weights_folder` receives the folder with config.json and the weights. `pooling` overrides the folder's. Throws
/// InputError for modules other than Transformer, Pooling and Normalize, and for other kinds of pooling.
SentenceOptions read_sentence_options(const std::string& folder, std::string& weights_folder,
                                      std::optional<Pooling> pooling = {});

/// forward only reads its parameters: under no_grad any number of threads may call one object.
class SentenceEncoder : public torch::nn::Module {
 public:
  /// Weights are uninitialized.
  SentenceEncoder(const Value& hf_config, SentenceOptions options);
  /// ids int64 [B, T], lengths of the B texts (T: the longest) -> fp32 [B, C].
  at::Tensor forward(const at::Tensor& ids, const std::vector<std::int64_t>& lengths);

  const SentenceOptions& options() const { return options_; }
  std::int64_t width() const { return spec_.hidden; }
  std::int64_t vocab_size() const { return spec_.vocabulary; }
  std::int64_t pad_token_id() const { return spec_.pad_token; }

  std::shared_ptr<BertModel> bert;

 private:
  SentenceOptions options_;
  ModelSpec spec_;
};

/// The encoder of a folder with its weights (fp32), in evaluation mode. Arguments that are set override the folder's
/// options. Throws InputError for a model other than BERT, a max_length beyond its positions, or weights that do not
/// fit.
std::shared_ptr<SentenceEncoder> load_sentence_encoder(const std::string& folder, std::optional<Pooling> pooling = {},
                                                       std::optional<bool> normalize = {}, std::int64_t max_length = 0);

}  // namespace tessera::models
