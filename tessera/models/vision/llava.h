#pragma once
/// \file
/// LLaVA (Liu et al. 2023), as transformers/models/llava/modeling_llava.py (LlavaForConditionalGeneration) computes
/// it: a vision tower, a projector of two linear maps, and a decoder, in which what the projector gives stands in the
/// place of the embeddings of image tokens. B batch, T tokens, N images, K tokens of an image.

#include <tessera/models/causal_lm.h>
#include <tessera/models/llama.h>
#include <tessera/models/vision/clip_vision.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

/// Maps linear_1, linear_2, ... with activations between them; two are transformers' LlavaMultiModalProjector.
struct LlavaProjector : torch::nn::Module {
  explicit LlavaProjector(const ModelSpec& spec);
  at::Tensor forward(const at::Tensor& x);  ///< [N, K, vision width] -> [N, K, decoder width]

  std::vector<std::shared_ptr<Linear>> maps;
  Activation activation;
};

/// The tower is frozen, as in LLaVA; projector and decoder are trained. Every pass of rows runs tower and projector,
/// with one black image of which nothing is used where the batch has none: so all processes of a sharded model run the
/// same operations, and the projector's gradient is then 0. A batch whose image tokens are not K for each of its images
/// throws InputError. Parts of rows (context parallelism) throw InputError, and so do image tokens while text is
/// continued with a cache, and tensor_plan(). Parameters: vision_tower.*, multi_modal_projector.*, language_model.*,
/// the names that llava-hf's folders have and transformers reads in all versions.
class Llava : public CausalLm {
 public:
  /// Weights are initialised from `seed`: N(0, initializer_range), biases 0, norms 1; without one they stay
  /// uninitialised.
  Llava(const Value& hf_config, std::optional<std::uint64_t> seed);

  std::optional<data::ImageInput> image_input() const override { return input_; }
  /// The decoder's alone, as LLaVA's find_all_linear_names has it.
  bool may_be_adapted(const std::string& module) const override { return module.starts_with("language_model."); }
  std::vector<ModelPart> parts() const override;  ///< the decoder's

  /// What preprocessor_config.json (CLIPImageProcessor) says of mean and deviation. Throws InputError for lists of
  /// another length than 3, deviations that are not above 0, and sides other than the tower's.
  void read_preprocessor(const Value& json);

  /// The same to be written, for transformers' CLIPImageProcessor.
  Value preprocessor() const;

  std::shared_ptr<ClipVisionModel> vision_tower;
  std::shared_ptr<LlavaProjector> multi_modal_projector;
  std::shared_ptr<Llama> language_model;

 protected:
  at::Tensor hidden(const at::Tensor& ids, ForwardContext context) override;
  const at::Tensor& head() const override;

 private:
  void initialise(std::uint64_t seed);
  /// What stands for images in the decoder: pixels [N, 3, S, S] -> [N, K, C].
  at::Tensor features(const at::Tensor& pixels);
  const architectures::Vision& vision() const { return *spec().vision; }

  data::ImageInput input_;
};

}  // namespace tessera::models
