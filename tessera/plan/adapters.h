#pragma once
/// \file
/// LoRA adapters on frozen weights (models/lora.h), which may be quantized (models/frozen/quantize.h). Maps are
/// selected by name, as in a run; tests/models/plan_model_test.cpp compares the two.

#include <tessera/plan/model.h>

#include <string>
#include <vector>

namespace tessera::plan {

/// The target maps; the family's default ones if none are named (LanguageModel::default_lora_targets).
std::vector<std::string> adapter_targets(const Model& model);
/// Checks targets and modules to save; returns the problem, or an empty text.
std::string adapters_problem(const Model& model);

/// Freezes the weights that adapters leave untrained, adds the adapters, and marks quantized weights. Does nothing
/// without adapters. `list`: the result of tensors().
void add_adapters(const Model& model, std::vector<Tensor>& list);

/// Bytes of a quantized weight [out, in] (nn/linear_maps/quantized.cpp).
double packed_bytes(const Adapters& adapters, double out, double in);

/// Number of a block's maps that keep their input for backward, that is, maps with trained weights or adapters.
/// `other`: experts and routers, which never have adapters.
struct KeepingMaps {
  int attention = 0, query_latent = 0, key_latent = 0, output = 0;
  int mlp = 0, down = 0;  ///< maps of a dense MLP, or of the dense MLP next to experts
  int other = 0;          ///< 1: experts and routers keep their inputs
};
KeepingMaps keeping_maps(const Model& model, bool sparse);

}  // namespace tessera::plan
