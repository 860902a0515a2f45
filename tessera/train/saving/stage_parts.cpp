#include <tessera/train/saving/stage_parts.h>

#include <algorithm>
#include <exception>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {

bool is_of_earlier_stage(const Sharded& sharded, const std::string& parameter) {
  const std::vector<std::string>& names = sharded.options().held_by_earlier_stage;
  return std::find(names.begin(), names.end(), parameter) != names.end();
}

bool is_state_of_earlier_stage(const Sharded& sharded, const std::string& state) {
  return is_of_earlier_stage(sharded, state.substr(state.find('.') + 1));
}

Dealing dealing_of(const Sharded& sharded, const comm::Group& all) {
  const ShardingOptions& options = sharded.options();
  const comm::Group tensor = tensor_group(sharded);
  if (!tensor && !options.stages) return {all};
  Dealing dealing{options.group, writes_whole(tensor)};
  if (!options.stages) return dealing;
  TESSERA_CHECK(options.group, "the ranks of a stage must be specified (ShardingOptions::group)");
  // In a stage without cut tensors all ranks of tp hold the same data.
  const std::vector<std::vector<std::int64_t>> places =
      comm::all_gather_numbers(all, {options.stages.rank(), options.group.rank()});
  const auto first = std::find(places.begin(), places.end(), places[static_cast<std::size_t>(all.rank())]);
  if (!tensor) dealing.whole = first - places.begin() == all.rank();
  return dealing;
}

Counts count_over_stages(const Sharded& sharded, const std::function<Counts()>& work) {
  const comm::Group& stages = sharded.options().stages;
  if (!stages) return work();
  Counts counts{};
  std::exception_ptr own;
  std::string error;
  ExitCode code = ExitCode::failed;
  try {
    counts = work();
  } catch (const Error& failed) {
    own = std::current_exception();
    error = failed.what();
    code = failed.exit_code();
  } catch (const std::exception& failed) {
    own = std::current_exception();
    error = failed.what();
  }
  const auto told = comm::all_gather_numbers(stages, {counts[0], counts[1], own ? static_cast<std::int64_t>(code) : 0});
  const std::vector<std::string> errors = comm::all_gather_text(stages, error);
  if (own) std::rethrow_exception(own);
  Counts sums{};
  for (std::size_t stage = 0; stage < told.size(); ++stage) {
    const std::string text =
        concat("stage ", stage, ": ",
               errors[stage].empty() ? "another rank of this stage failed and reports the reason" : errors[stage]);
    if (told[stage][2] == static_cast<std::int64_t>(ExitCode::bad_input)) throw InputError(text);
    if (told[stage][2] != 0) throw Error(text, static_cast<ExitCode>(told[stage][2]));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += told[stage][i];
  }
  return sums;
}

}  // namespace tessera::train
