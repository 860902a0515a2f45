#include <tessera/config/core/run_schedule.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/table.h>

#include <algorithm>

namespace tessera::config {
namespace {

namespace schedule = layout::schedule;

/// Applies `make` to the row found by the schedule's name.
auto made_by_row(const std::string& name, const std::string& said, const auto& make) {
  try {
    return make(schedule::schedule_of(name));
  } catch (const InputError& error) {
    const bool unknown = schedule::find_schedule(name) == nullptr;
    throw InputError(concat(said, ": ", error.what(), unknown ? "; no file has that name either" : ""));
  }
}

class AskedSchedule {
 public:
  AskedSchedule(const RunConfig& config, const SaySetting& say, std::int64_t micro_batches = 0)
      : p_(config.parallel),
        steps_(micro_batches > 0 ? micro_batches : config.optimization.gradient_accumulation_steps),
        said_(say ? say("pipeline_schedule") : "pipeline_schedule") {}

  std::int64_t stages() const {
    if (is_schedule_file(p_.pipeline_schedule)) {
      const schedule::Schedule read = of_file();
      return read.stages() / static_cast<std::int64_t>(read.ranks.size());
    }
    return made_by_row(p_.pipeline_schedule, said_, [&](const schedule::ScheduleRow& row) {
      const std::int64_t each = p_.pipeline_stages_per_rank > 0 ? p_.pipeline_stages_per_rank : row.least_stages;
      const bool small = steps_ <= most_made && p_.pp_size * each <= most_made / steps_;
      (void)schedule::make_schedule(row.name,
                                    small ? shape() : schedule::Shape{.stages_per_rank = shape().stages_per_rank});
      return each;
    });
  }

  std::vector<int> rank_of() const {
    if (is_schedule_file(p_.pipeline_schedule)) return of_file().rank_of;
    const auto each = static_cast<int>(stages());
    return schedule::place_stages(schedule::schedule_of(p_.pipeline_schedule).placement, static_cast<int>(p_.pp_size),
                                  each);
  }

  schedule::Schedule make() const {
    if (is_schedule_file(p_.pipeline_schedule)) return schedule::computations_of(of_file());
    return made_by_row(p_.pipeline_schedule, said_,
                       [&](const schedule::ScheduleRow& row) { return schedule::make_schedule(row.name, shape()); });
  }

 private:
  schedule::Shape shape() const {
    return {.ranks = static_cast<int>(p_.pp_size),
            .stages_per_rank = static_cast<int>(p_.pipeline_stages_per_rank),
            .micro_batches = static_cast<int>(steps_),
            .group_size = static_cast<int>(p_.pipeline_group_size)};
  }

  /// Returns the file's schedule unchanged, after checking that it is valid and fits the settings.
  schedule::Schedule of_file() const {
    const std::string& file = p_.pipeline_schedule;
    const auto wrong = [&](const auto&... parts) { throw InputError(concat(said_, " ", file, parts...)); };
    const auto must_be_right = [&](const auto& act) {
      try {
        act();
      } catch (const InputError& error) {
        wrong(": ", error.what(), "; correct it, or use another file");
      }
    };
    schedule::Schedule read;
    must_be_right([&] { read = schedule::read_schedule(file); });
    const auto ranks = static_cast<std::int64_t>(read.ranks.size()), given = p_.pipeline_stages_per_rank;
    if (ranks != p_.pp_size)
      wrong(" is a schedule of ", ranks, " ranks, but pp_size is ", p_.pp_size, ": use --pp_size ", ranks,
            ", or another file");
    if (read.micro_batches != steps_)
      wrong(" is a schedule of ", read.micro_batches, " micro-batches, but gradient_accumulation_steps is ", steps_,
            ": use --gradient_accumulation_steps ", read.micro_batches, ", or another file");
    must_be_right([&] { schedule::check(read); });
    if (!schedule::has_backward(read)) wrong(" is a schedule without backward: nothing would be trained");
    const std::int64_t each = read.stages() / ranks;
    if (read.stages() % ranks != 0)
      wrong(" has ", read.stages(), " stages, which ", ranks, " ranks cannot share evenly");
    if (given > 0 && given != each)
      wrong(" has ", each, " stages per rank, but pipeline_stages_per_rank is ", given, ": remove it");
    return read;
  }

  static constexpr std::int64_t most_made = 1 << 20;  ///< ranks x stages per rank x micro-batches
  const ParallelConfig& p_;
  const std::int64_t steps_;
  const std::string said_;
};

}  // namespace

bool is_schedule_file(const std::string& name) {
  return schedule::find_schedule(name) == nullptr && path_exists(name) && !is_directory(name);
}

std::int64_t stages_per_rank(const RunConfig& config, const SaySetting& say) {
  return AskedSchedule(config, say).stages();
}

std::vector<int> ranks_of_stages(const RunConfig& config, const SaySetting& say) {
  return AskedSchedule(config, say).rank_of();
}

void check_shares(const std::vector<layout::StagePart>& stages, const std::vector<int>& rank_of) {
  TESSERA_CHECK(stages.size() == rank_of.size() && !stages.empty(), stages.size(), " stages on ", rank_of.size(),
                " places");
  const int ranks = *std::max_element(rank_of.begin(), rank_of.end()) + 1;
  std::vector<bool> holds(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (stages[i].blocks > 0 || stages[i].embeddings || stages[i].end)
      holds[static_cast<std::size_t>(rank_of[i])] = true;
  const auto idle = std::find(holds.begin(), holds.end(), false);
  if (idle == holds.end()) return;
  throw InputError(concat("pipeline rank ", idle - holds.begin(), " of ", ranks,
                          " would get no part of the model: its ", stages.back().past_block(), " blocks are cut into ",
                          stages.size(),
                          " stages; use fewer (--pp_size, --pipeline_stages_per_rank), or another --pipeline_layout"));
}

layout::schedule::Schedule run_schedule(const RunConfig& config, const SaySetting& say) {
  return AskedSchedule(config, say).make();
}

layout::schedule::Schedule run_schedule(const RunConfig& config, std::int64_t micro_batches, const SaySetting& say) {
  if (is_schedule_file(config.parallel.pipeline_schedule))
    throw InputError(concat(say ? say("pipeline_schedule") : "pipeline_schedule", " ",
                            config.parallel.pipeline_schedule,
                            " is a file with a fixed number of micro-batches, but the steps of a growing batch have "
                            "different sizes: use a named schedule, such as 1f1b"));
  return AskedSchedule(config, say, micro_batches).make();
}

}  // namespace tessera::config
