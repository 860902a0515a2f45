// The mesh, and train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
// processes: missing factors are inferred (deepspeed/runtime/config.py, _set_batch_related_parameters).

#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tessera::config::deepspeed {
namespace {

constexpr const char* train_key = "train_batch_size";
constexpr const char* micro_key = "train_micro_batch_size_per_gpu";
constexpr const char* steps_key = "gradient_accumulation_steps";
constexpr const char* micro_setting = "per_device_train_batch_size";
// DeepSpeed's sequence parallelism is Ulysses (deepspeed/sequence/layer.py).
constexpr const char* sequence_key = "sequence_parallel_size";
constexpr const char* stages_key = "pipeline.stages";
constexpr const char* tensor_keys[] = {"tensor_parallel.autotp_size", "tensor_parallel.tp_size",
                                       "tensor_parallel.tp.tp_size"};
constexpr const char* steps_setting = "gradient_accumulation_steps";

/// A product as text, even beyond 64 bits.
std::string product(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  const double real = static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
  return real < 9e15 ? concat(a * b * c) : format_real(real);
}

class Batch {
 public:
  explicit Batch(Reading& r) : r_(r), o_(r.so_far.values.optimization) {}

  void read() {
    for (const char* key : {train_key, micro_key, steps_key})
      if (const auto size = r_.whole(key); size && *size < 1) {
        r_.to.problem(r_.value(key)->where(), concat(key, " is ", *size, "; it has to be greater than 0"),
                      {micro_setting, steps_setting});
        return;
      }
    const auto train = r_.whole(train_key), micro = known(micro_key, micro_setting, o_.per_device_train_batch_size),
               steps = known(steps_key, steps_setting, o_.gradient_accumulation_steps);
    if (r_.alone && !train && !r_.whole(micro_key)) {
      r_.to.problem(nearest_place(),
                    "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided (or "
                    "--per_device_train_batch_size among the arguments)",
                    {micro_setting});
      return;
    }
    // evaluate both, so that each reports its own contradiction
    const bool micro_agreed = said(micro_key, micro_setting);
    const bool steps_agreed = said(steps_key, steps_setting);
    if (train && micro_agreed && steps_agreed) infer(*train, micro, steps);
  }

 private:
  /// The file's value, or the other sources' for "auto" or an absent key; nullopt if nothing sets it.
  std::optional<std::int64_t> known(const char* key, const char* setting, std::int64_t elsewhere) const {
    if (const auto size = r_.whole(key)) return size;
    if (r_.given_elsewhere(setting)) return elsewhere;
    return r_.is_auto(key) && !r_.alone ? std::optional(elsewhere) : std::nullopt;
  }

  /// Reads the file's value; returns false after reporting a problem.
  bool said(const char* key, const char* setting) {
    const Value* value = r_.value(key);
    if (value == nullptr) return true;
    if (searched(setting)) return true;
    const std::string text = concat(*r_.whole(key));
    if (!r_.agrees(setting, key, text, value->where(), setting)) return false;
    r_.to.give(setting, key, text, value->where());
    return true;
  }
  /// A batch size that is being searched is not an error.
  bool searched(const char* setting) const {
    return setting == micro_setting && o_.auto_find_batch_size && r_.given_elsewhere(setting);
  }

  void infer(std::int64_t train, std::optional<std::int64_t> micro, std::optional<std::int64_t> steps) {
    const std::int64_t ranks = r_.processes();
    const bool micro_open = !micro, steps_open = !steps;
    if (micro_open) micro = train / ranks / steps.value_or(1);
    if (steps_open) steps = micro_open ? 1 : train / *micro / ranks;
    const SourcePos where = r_.value(train_key)->where();
    if (double(train) != double(*micro) * double(*steps) * double(ranks)) {
      if (searched(micro_setting)) return;
      if (!micro_open && !steps_open && !(r_.value(micro_key) && r_.value(steps_key)))
        return differs(train, *micro, *steps, where);
      r_.to.problem(
          where,
          concat("train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size ", train,
                 " != ", *micro, " * ", *steps, " * ", ranks, remedy(micro_open, steps_open, micro.value(), *steps)),
          {micro_setting, steps_setting});
      return;
    }
    if (micro_open) r_.to.give(micro_setting, train_key, concat(*micro), where);
    if (steps_open) r_.to.give(steps_setting, train_key, concat(*steps), where);
  }

  std::string remedy(bool micro_open, bool steps_open, std::int64_t micro, std::int64_t steps) const {
    if (!micro_open && !steps_open) return ": remove one of the three";
    const std::int64_t ranks = r_.processes();
    const std::string with = !micro_open  ? concat(" and micro batches of ", micro)
                             : steps_open ? std::string()
                                          : concat(" and ", steps, " accumulation steps");
    return concat(": with ", ranks, ranks == 1 ? " process" : " processes", with, " it must be a multiple of ",
                  product(ranks, !micro_open  ? micro
                                 : steps_open ? 1
                                              : steps));
  }

  /// Reports batch sizes that contradict each other when one of the factors does not come from the file.
  void differs(std::int64_t train, std::int64_t micro, std::int64_t steps, const SourcePos& where) {
    const std::int64_t ranks = r_.processes();
    const auto from = [&](const char* key, const char* setting) {
      return r_.value(key) != nullptr ? file_and_line(r_.value(key)->where()) : r_.so_far.origin(setting).str();
    };
    r_.to.problem(where,
                  concat(Reading::mismatch(train_key, concat(train), "train_batch_size (calculated)",
                                           product(micro, steps, ranks)),
                         " (", micro_setting, " ", micro, " from ", from(micro_key, micro_setting), ", ", steps_setting,
                         " ", steps, " from ", from(steps_key, steps_setting), ", ", ranks,
                         ranks == 1 ? " process" : " processes", "): make them equal, or write \"auto\""),
                  {micro_setting, steps_setting});
  }

  /// Returns the position for messages about missing keys.
  SourcePos nearest_place() const {
    for (const auto& [path, value] : r_.said)
      if (value->where().file) return {value->where().file, 1, 1};
    return {std::make_shared<const std::string>("deepspeed"), 1, 1};
  }

  Reading& r_;
  const OptimizationConfig& o_;
};

}  // namespace

std::int64_t Reading::processes() const {
  ParallelConfig parallel = so_far.values.parallel;
  for (const char* key : tensor_keys)
    if (const auto size = whole(key); size && *size > 1) parallel.tp_size = *size;
  if (const auto size = whole(sequence_key); size && *size > 1) parallel.cp_size = *size;
  if (const auto size = whole(stages_key); size && *size > 1) parallel.pp_size = *size;
  for (const std::int64_t size : {parallel.pp_size, parallel.tp_size, parallel.cp_size})
    if (size > 1 << 20) return 1;
  if (ranks_per_sample(parallel) > 1 << 20) return 1;  // reported by the settings' own rules
  return data_parallel_ranks(parallel, std::max<std::int64_t>(1, parallel.num_processes));
}

void read_mesh(Reading& r) {
  if (const auto size = r.whole(stages_key); size && *size > 1)
    r.say("pp_size", stages_key, concat(*size), r.value(stages_key)->where());
  const char* first = nullptr;
  for (const char* key : tensor_keys) {
    const auto size = r.whole(key);
    if (!size || *size <= 1) continue;
    if (first == nullptr)
      r.say("tp_size", first = key, concat(*size), r.value(key)->where());
    else if (*size != r.whole(first))
      r.to.problem(r.value(key)->where(), concat(key, " ", *size, " contradicts ", first, " ", *r.whole(first)),
                   {"tp_size"});
  }
  if (const auto size = r.whole(sequence_key); size && *size > 1) {
    const SourcePos where = r.value(sequence_key)->where();
    r.say("cp_size", sequence_key, concat(*size), where);
    r.say("cp_comm_type", sequence_key, "a2a", where);
  }
}

void read_batch_sizes(Reading& r) { Batch(r).read(); }

}  // namespace tessera::config::deepspeed
