#pragma once
/// \file
/// The schedule of a run's pipeline, by name or from a file. `config check`, --print_config and the run all check its
/// settings here, so they agree.

#include <tessera/config/core/mesh.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/stages.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::config {

/// Whether a --pipeline_schedule is a file: true unless layout/schedule/table.h has that name.
bool is_schedule_file(const std::string& name);

/// Stages per process of the pipeline. Builds a named schedule to check that it exists for these sizes, unless that
/// would take long; then run_schedule() checks it. Throws InputError with the setting (spelled by `say`), the problem
/// and sizes that would fit.
std::int64_t stages_per_rank(const RunConfig& config, const SaySetting& say = {});

/// The computations of all processes of the pipeline, pp_size > 1. Throws like stages_per_rank().
layout::schedule::Schedule run_schedule(const RunConfig& config, const SaySetting& say = {});

/// The schedule of a step with a different number of micro-batches, for a growing batch; only named schedules can be
/// rebuilt. Throws like stages_per_rank(), and for a schedule from a file, which has a fixed number.
layout::schedule::Schedule run_schedule(const RunConfig& config, std::int64_t micro_batches,
                                        const SaySetting& say = {});

/// The process that holds each stage of that schedule. Throws like stages_per_rank().
std::vector<int> ranks_of_stages(const RunConfig& config, const SaySetting& say = {});
/// Throws InputError, with the numbers and what to change, if a process would get no part of a model that is cut like
/// this.
void check_shares(const std::vector<layout::StagePart>& stages, const std::vector<int>& rank_of);

}  // namespace tessera::config
