#pragma once
/// \file
/// From the settings of a run, whichever file or flag said them, to a plan.

#include <tessera/config/core/run_config.h>
#include <tessera/plan/hardware.h>
#include <tessera/plan/plan.h>

namespace tessera::plan {

/// The model that the settings name (model_name_or_path, config_name). Throws InputError when neither is given or the
/// file is wrong.
Model model_of(const RunConfig& config);

/// The plan of these settings on a mesh, as they are: nothing is checked. A schedule that is a file counts as 1F1B.
Plan plan_on(const RunConfig& config, const Model& model, const layout::Mesh& mesh, bool on_cpu);

/// The plan of these settings on the cluster's devices. A block size of 0 is min(1024, positions), as in training.
/// Throws InputError: a mesh that the devices cannot be, a schedule that is not known.
Plan plan_of(const RunConfig& config, const Model& model, const Cluster& cluster);

}  // namespace tessera::plan
