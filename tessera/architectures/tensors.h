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

/// What a parameter belongs to.
enum class Part : unsigned char { embedding, norm, attention, mlp, router, expert, head, tower, projector };
inline constexpr std::size_t part_count = 9;
std::string_view part_name(Part part);

/// A parameter.
struct Tensor {
  std::string name;                 ///< name in a Hugging Face folder
  std::vector<std::int64_t> shape;  ///< whole, of all ranks
  Part part = Part::mlp;            ///< what it belongs to
  std::int64_t block = -1;          ///< -1: embeddings; `layers`: the end
  std::int64_t expert = -1;         ///< -1: of no expert
  int cut = -1;                     ///< the dimension that tensor parallelism divides; -1: every rank has all of it
  std::int64_t heads = 0;           ///< > 0: divided between this many heads, which ranks share when there are fewer
  bool trained = true;              ///< false: a buffer, or frozen by the family
  double packed_bytes = 0;          ///< > 0: frozen and kept in this many bytes, whole on every rank; not a parameter
  std::vector<std::int64_t> block_heads = {};  ///< several such matrices on one another, heads of the same size

  double numel() const;  ///< elements of the whole tensor
};
/// All of them, a tied head once, in the order of the modules.
std::vector<Tensor> tensors(const ModelSpec& spec);
/// How many elements of the tensor the fullest of `tp` ranks holds.
double elements_on_rank(const Tensor& tensor, int tp);

/// How tensor parallelism cuts the parameters (transformers' base_model_tp_plan, and what it has no plan for). Throws
/// InputError for models that see images.
layout::TensorPlan tensor_plan(const ModelSpec& spec);

/// The parameter that a tied head shares: a folder may hold it under lm_head.weight alone.
std::string embedding_parameter(const ModelSpec& spec);
/// The expert of its layer that the parameter of this name belongs to; nothing: it is none's.
std::optional<std::int64_t> expert_of(const ModelSpec& spec, const std::string& parameter);
/// Modules that LoRA adapts when none are named (PEFT's mapping for the family): {"q_proj", "v_proj"}.
std::vector<std::string> default_lora_targets(const ModelSpec& spec);

}  // namespace tessera::architectures
