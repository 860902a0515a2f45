#pragma once
/// \file
/// The schedule of a run's pipeline, by name or from a file: the one place where its settings are checked against it.
/// `config check`, --print_config and the run itself ask here, so that they have one verdict.

#include <tessera/config/core/mesh.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/stages.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::config {

/// Whether a --pipeline_schedule is a file; the names of layout/schedule/table.h come first.
bool is_schedule_file(const std::string& name);

/// Stages that each process of the pipeline has. Makes a named schedule to see whether there is one of these sizes, but
/// for one that would take long: that is left to run_schedule(). Throws InputError: the setting (`say` names it), what
/// is wrong with it, and what would fit.
std::int64_t stages_per_rank(const RunConfig& config, const SaySetting& say = {});

/// The computations of all processes of the pipeline, pp_size > 1. Throws as stages_per_rank().
layout::schedule::Schedule run_schedule(const RunConfig& config, const SaySetting& say = {});

/// That of a step with another number of micro-batches, as a growing batch has them: a schedule that has a name
/// can be made of any. Throws as stages_per_rank(), and where it is a file, which is made for one number.
layout::schedule::Schedule run_schedule(const RunConfig& config, std::int64_t micro_batches,
                                        const SaySetting& say = {});

/// The process of the pipeline that holds each stage of that schedule. Throws as stages_per_rank().
std::vector<int> ranks_of_stages(const RunConfig& config, const SaySetting& say = {});
/// Throws InputError when a process would hold nothing of a model that is cut so: the numbers and what to change.
void check_shares(const std::vector<layout::StagePart>& stages, const std::vector<int>& rank_of);

}  // namespace tessera::config
