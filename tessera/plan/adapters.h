#pragma once
/// \file
/// LoRA adapters beside frozen weights (models/lora.h), which may be kept in few bits (models/frozen/quantize.h). Which
/// maps are meant is said by names, as in a run; tests/models/plan_model_test.cpp compares the two.

#include <tessera/plan/model.h>

#include <string>
#include <vector>

namespace tessera::plan {

/// The targets, the family's where none are named (LanguageModel::default_lora_targets).
std::vector<std::string> adapter_targets(const Model& model);
/// What is wrong with targets and modules to save; empty: nothing.
std::string adapters_problem(const Model& model);

/// Freezes what is not trained beside adapters, adds these, and says which weights are kept in few bits. Does nothing
/// without adapters. `list`: as tensors() has it.
void add_adapters(const Model& model, std::vector<Tensor>& list);

/// Bytes of a weight [out, in] in few bits (nn/linear_maps/quantized.cpp).
double packed_bytes(const Adapters& adapters, double out, double in);

/// How many of a block's maps keep what they take: those whose weights are trained, or that have adapters. `other`:
/// experts and routers, which never have any.
struct KeepingMaps {
  int attention = 0, query_latent = 0, key_latent = 0, output = 0;
  int mlp = 0, down = 0;  ///< a dense MLP's, or those of the one beside experts
  int other = 0;          ///< 1: those keep theirs
};
KeepingMaps keeping_maps(const Model& model, bool sparse);

}  // namespace tessera::plan
