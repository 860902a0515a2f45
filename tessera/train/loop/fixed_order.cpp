#include <tessera/train/loop/fixed_order.h>

#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>

namespace tessera::train {
namespace {

bool was_given(const Value& resolved, const char* section, const char* name, bool differs_from_default) {
  if (const Value* values = resolved.is_object() ? resolved.find(section) : nullptr)
    if (const Value* setting = values->find(name)) return setting->at("origin").as_string() != "default";
  return differs_from_default;
}

/// The process counts that divide V = `shards`, at most 16 of them.
std::string divisors(std::int64_t shards) {
  std::vector<std::string> numbers;
  for (std::int64_t n = 1; n <= shards && numbers.size() < 16; ++n)
    if (shards % n == 0) numbers.push_back(std::to_string(n));
  return join(numbers);
}

}  // namespace

RunConfig with_fixed_order(RunConfig config, const Value& resolved, std::int64_t copies) {
  auto& parallel = config.parallel;
  std::int64_t& accumulation = config.optimization.gradient_accumulation_steps;
  std::int64_t& shards = parallel.logical_shards;
  if (!parallel.deterministic_reduce) {
    if (shards > 0)
      throw InputError(concat("--logical_shards ", shards,
                              " is the number of micro-batches of a step in fixed order, but --deterministic_reduce is "
                              "not set: add it, or remove --logical_shards"));
    return config;
  }
  if (shards == 0) shards = copies * accumulation;
  std::vector<std::string> problems;
  if (shards % copies != 0) {
    problems.push_back(concat("--logical_shards ", shards, " micro-batches of a step are not divisible by ", copies,
                              " processes: use ", divisors(shards), " processes, or a multiple of ", copies,
                              " shards"));
  } else if (was_given(resolved, "optimization", "gradient_accumulation_steps", accumulation != 1) &&
             accumulation != shards / copies) {
    problems.push_back(concat("--gradient_accumulation_steps ", accumulation, " contradicts --logical_shards ", shards,
                              ": ", copies, " processes take ", shards, " / ", copies, " = ", shards / copies,
                              " micro-batches each; remove --gradient_accumulation_steps"));
  }
  if (parallel.threads_per_process > 1)
    problems.push_back(
        concat("--threads_per_process ", parallel.threads_per_process,
               " contradicts --deterministic_reduce: sums inside a matrix product depend on the number of "
               "threads, so each process has 1; start more processes instead"));
  if (!problems.empty()) throw InputError(join(problems, "\n"));
  accumulation = shards / copies;
  parallel.threads_per_process = 1;
  return config;
}

}  // namespace tessera::train
