#pragma once
/// \file
/// Converts the settings of a run, from any source, to a plan.

#include <tessera/plan/hardware.h>
#include <tessera/plan/plan.h>

namespace tessera {
struct RunConfig;
}

namespace tessera::plan {

/// Returns the model named by the settings (model_name_or_path or config_name; with vision_tower, both). Throws
/// InputError if neither is given, the file is invalid, the folder contains adapters, or adapters are requested where
/// the planner does not support them.
Model model_of(const RunConfig& config);
/// Sets the parts of a model that the settings train: adapters (lora_r), and for a vision-language model
/// tune_mm_mlp_adapter and related settings.
void choose_trained_parts(Model& model, const RunConfig& config);

/// Returns the plan of these settings on a mesh, unchecked. A schedule from a file counts as 1F1B. Rows of a
/// vision-language model are examples: max_seq_length, if given, is their maximum length.
Plan plan_on(const RunConfig& config, const Model& model, const layout::Mesh& mesh, bool on_cpu);

/// Returns the plan of these settings on the cluster's devices. A block size of 0 means min(1024, positions), as in
/// training. Throws InputError: a mesh that does not fit the devices, an unknown schedule.
Plan plan_of(const RunConfig& config, const Model& model, const Cluster& cluster);

}  // namespace tessera::plan
