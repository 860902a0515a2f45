#pragma once
/// \file
/// LLaVA (Liu et al. 2023), following transformers/models/llava/modeling_llava.py (LlavaForConditionalGeneration): a
/// vision tower, a projector of two linear maps, and a decoder, in which the projector's output replaces the embeddings
/// of image tokens. B batch, T tokens, N images, K tokens of an image.

#include <tessera/models/causal_lm.h>
#include <tessera/models/llama.h>
#include <tessera/models/vision/clip_vision.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

/// Maps linear_1, linear_2, ... with activations in between; two of them are transformers' LlavaMultiModalProjector.
struct LlavaProjector : torch::nn::Module {
  explicit LlavaProjector(const ModelSpec& spec);
  at::Tensor forward(const at::Tensor& x);  ///< [N, K, vision width] -> [N, K, decoder width]

  std::vector<std::shared_ptr<Linear>> maps;
  Activation activation;
};

/// The tower is frozen, as in LLaVA; projector and decoder are trained. Every pass runs tower and projector, with one
/// black, unused image if the batch has none, so that all processes of a sharded model run the same operations; the
/// projector's gradient is then 0. Throws InputError for a batch whose image tokens are not K for each of its images,
/// for parts of rows (context parallelism), for image tokens while text is continued with a cache, and in
/// tensor_plan(). Parameters: vision_tower.*, multi_modal_projector.*, language_model.*, the names in llava-hf's
/// folders, which all versions of transformers read.
class Llava : public CausalLm {
 public:
  /// Weights are initialized from `seed`: N(0, initializer_range), biases 0, norms 1; without one they stay
  /// uninitialized.
  Llava(const Value& hf_config, std::optional<std::uint64_t> seed);

  std::optional<data::ImageInput> image_input() const override { return input_; }
  /// Only the decoder's, as in LLaVA's find_all_linear_names.
  bool may_be_adapted(const std::string& module) const override { return module.starts_with("language_model."); }
  std::vector<ModelPart> parts() const override;  ///< the decoder's parts

  /// Reads mean and deviation from preprocessor_config.json (CLIPImageProcessor). Throws InputError for lists of
  /// another length than 3, deviations that are not above 0, and sides other than the tower's.
  void read_preprocessor(const Value& json);

  /// Returns the same values in the form of transformers' CLIPImageProcessor, for writing.
  Value preprocessor() const;

  std::shared_ptr<ClipVisionModel> vision_tower;
  std::shared_ptr<LlavaProjector> multi_modal_projector;
  std::shared_ptr<Llama> language_model;

 protected:
  at::Tensor hidden(const at::Tensor& ids, ForwardContext context) override;
  const at::Tensor& head() const override;

 private:
  void initialise(std::uint64_t seed);
  /// Computes the decoder's image embeddings: pixels [N, 3, S, S] -> [N, K, C].
  at::Tensor features(const at::Tensor& pixels);
  const architectures::Vision& vision() const { return *spec().vision; }

  data::ImageInput input_;
};

}  // namespace tessera::models
