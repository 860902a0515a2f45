#include <tessera/plan/sure.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace tessera::plan {

Sureness sureness(const Cluster& cluster, const Engine& engine) {
  if (cluster.device.measured) return {0.024, 0.07, 0.024, "steps of tessera train on calibrated machines"};
  // The median and the 90th percentile over published runs of sources that were not used to fit a constant.
  static constexpr const char* compared[] = {"A100", "A100-40", "H100", "H100-500W", "B200", "GB300", "V100"};
  if (std::find(std::begin(compared), std::end(compared), cluster.device.name) == std::end(compared))
    return {0.1, 0.3, 0.06, "a guess: no run on such devices has been compared"};
  return {0.04, 0.13, 0.04,
          engine.name == EngineName::tessera
              ? "other programs' published runs on such devices (none of tessera compared)"
              : "published runs on such devices"};
}

double messages_of_step(const Model& m, const Plan& run) {
  const double blocks = real(m.layers) / run.pp(), micro_batches = real(run.micro_batches);
  const double passes = 2 + run.recomputed_share();  // forward, backward, recomputed forward
  double messages = 0;
  if (run.tp() > 1) messages += micro_batches * blocks * 2 * passes * (run.sequence_parallel ? 2 : 1);
  if (run.cp() > 1) messages += micro_batches * blocks * passes * (run.cp() - 1);
  if (run.mesh.ep > 1 && m.experts) messages += micro_batches * blocks * 2 * passes;
  if (run.pp() > 1) messages += micro_batches * 4 * real(run.stages_per_rank);
  if (run.dp() * run.cp() > 1) {
    const StrategyRow& row = row_of(run.strategy);
    const double gathers =
        !row.shard_parameters ? (row.shard_optimizer ? 1 : 0) : micro_batches * (row.reshard_after_forward ? 2 : 1);
    const double reductions = row.shard_parameters || row.shard_gradients ? micro_batches : 1;
    messages += blocks * (gathers + reductions);
  }
  return messages;
}

Tie break_tie(const Model& model, std::vector<Candidate>& best, double tolerance) {
  if (best.empty()) return {};
  const auto end = std::find_if(best.begin(), best.end(),
                                [&](const Candidate& c) { return c.seconds > best.front().seconds * (1 + tolerance); });
  Tie tie;
  tie.equal = static_cast<std::size_t>(end - best.begin());
  if (tie.equal < 2) return tie;
  const auto fewest = [&](const Candidate& a, const Candidate& b) {
    const double ours = messages_of_step(model, a.plan), theirs = messages_of_step(model, b.plan);
    return ours != theirs ? ours < theirs : a.memory.total() < b.memory.total();
  };
  const auto first = std::min_element(best.begin(), end, fewest);
  const double messages = messages_of_step(model, first->plan);
  // The value by which the next candidate is compared: its messages, otherwise its memory.
  const Candidate* next = nullptr;
  for (auto c = best.begin(); c != end; ++c)
    if (c != first && (next == nullptr || fewest(*c, *next))) next = &*c;
  const double others = messages_of_step(model, next->plan);
  char memory[64];
  std::snprintf(memory, sizeof(memory), "more memory left: it needs %.1f GB, the next one %.1f GB",
                first->memory.total() / 1e9, next->memory.total() / 1e9);
  tie.reason = messages < others ? concat("fewer messages: ", format_count(messages),
                                          " per step and rank, the next one ", format_count(others))
                                 : std::string(memory);
  std::rotate(best.begin(), first, first + 1);
  return tie;
}

}  // namespace tessera::plan
