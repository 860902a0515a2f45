#pragma once
/// \file
/// Every parameter of an architecture by name, and how tensor parallelism cuts it. tests/models/plan_model_test.cpp
/// compares the list with the modules.

#include <tessera/architectures/spec.h>
#include <tessera/layout/tensor_plan.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::architectures {

/// The part of the model that a parameter belongs to.
enum class Part : unsigned char { embedding, norm, attention, mlp, router, expert, head, tower, projector };
inline constexpr std::size_t part_count = 9;
std::string_view part_name(Part part);

/// A parameter.
struct Tensor {
  std::string name;                 ///< name in a Hugging Face folder
  std::vector<std::int64_t> shape;  ///< whole tensor, over all ranks
  Part part = Part::mlp;            ///< part of the model
  std::int64_t block = -1;          ///< -1: embeddings; `layers`: the end
  std::int64_t expert = -1;         ///< -1: not in an expert
  int cut = -1;                     ///< dimension that tensor parallelism divides; -1: whole on every rank
  std::int64_t heads = 0;           ///< > 0: divided by heads; with fewer heads than ranks, ranks share them
  bool trained = true;              ///< false: a buffer, or frozen by the family
  /// > 0: frozen and quantized to this many bytes, whole on every rank; not a parameter
  double packed_bytes = 0;
  std::vector<std::int64_t> block_heads = {};  ///< several such matrices stacked, with heads of the same size

  double numel() const;  ///< elements of the whole tensor
};
/// All parameters, a tied head once, in the order of the modules.
std::vector<Tensor> tensors(const ModelSpec& spec);
/// Number of elements of the tensor on the fullest of `tp` ranks.
double elements_on_rank(const Tensor& tensor, int tp);

/// How tensor parallelism cuts the parameters (transformers' base_model_tp_plan, extended to models without one).
/// Throws InputError for vision-language models.
layout::TensorPlan tensor_plan(const ModelSpec& spec);

/// The parameter that a tied head shares; some folders store it only as lm_head.weight.
std::string embedding_parameter(const ModelSpec& spec);
/// The expert of its layer that this parameter belongs to; nullopt: none.
std::optional<std::int64_t> expert_of(const ModelSpec& spec, const std::string& parameter);
/// Modules that LoRA adapts by default (PEFT's mapping for the family): {"q_proj", "v_proj"}.
std::vector<std::string> default_lora_targets(const ModelSpec& spec);

}  // namespace tessera::architectures
