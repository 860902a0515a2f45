#pragma once
/// \file
/// Texts to vectors: an encoder, pooling over its tokens and normalisation, as sentence-transformers' folders describe
/// them (modules.json, 1_Pooling/config.json, sentence_bert_config.json).

#include <tessera/models/bert/bert.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::models {

/// How the vectors of a text's tokens become one: their mean, the first one's ([CLS]), the maximum of each component.
enum class Pooling { mean, cls, max };

struct SentenceOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;       ///< to length 1
  std::int64_t max_length = 0;  ///< tokens of a text, special ones included; longer texts are cut
};

/// What a folder says; of a plain model folder: mean pooling, not normalised, as sentence-transformers reads it.
/// `weights_folder` receives where config.json and the weights are. `pooling` replaces the folder's. Throws InputError
/// for modules other than Transformer, Pooling and Normalize, and for other ways of pooling.
SentenceOptions read_sentence_options(const std::string& folder, std::string& weights_folder,
                                      std::optional<Pooling> pooling = {});

/// Only its parameters are read in forward: under no_grad any number of threads may call one object.
class SentenceEncoder : public torch::nn::Module {
 public:
  /// Weights are uninitialised.
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

/// The encoder of a folder with its weights (fp32), in evaluation mode. What is given replaces what the folder says.
/// Throws InputError for another model than BERT, a max_length beyond its positions, or weights that do not fit.
std::shared_ptr<SentenceEncoder> load_sentence_encoder(const std::string& folder, std::optional<Pooling> pooling = {},
                                                       std::optional<bool> normalize = {}, std::int64_t max_length = 0);

}  // namespace tessera::models
