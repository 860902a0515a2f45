#pragma once
/// \file
/// From the settings of a run, whichever file or flag said them, to a plan.

#include <tessera/plan/hardware.h>
#include <tessera/plan/plan.h>

namespace tessera {
struct RunConfig;
}

namespace tessera::plan {

/// The model that the settings name (model_name_or_path, config_name; with vision_tower both). Throws InputError
/// when neither is given, the file is wrong, the folder holds adapters, or these would be where the planner knows none.
Model model_of(const RunConfig& config);
/// Which parts of a model the settings train: adapters (lora_r), of one that sees images tune_mm_mlp_adapter and those
/// beside it.
void choose_trained_parts(Model& model, const RunConfig& config);

/// The plan of these settings on a mesh, as they are: nothing is checked. A schedule that is a file counts as 1F1B.
/// Rows of a model that sees images are examples: max_seq_length, where it is given, says how long they may be.
Plan plan_on(const RunConfig& config, const Model& model, const layout::Mesh& mesh, bool on_cpu);

/// The plan of these settings on the cluster's devices. A block size of 0 is min(1024, positions), as in training.
/// Throws InputError: a mesh that the devices cannot be, a schedule that is not known.
Plan plan_of(const RunConfig& config, const Model& model, const Cluster& cluster);

}  // namespace tessera::plan
