// libFuzzer entry for the planner's input files: any bytes of a config.json or a recorded step give a model or an
// InputError, a hardware file a cluster or an InputError. Then the model's parameters add up, a plan for it has finite
// memory and time, and steps and hardware read back as written.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/time.h>

namespace {

using namespace tessera;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Any recorded step reads back, and its memory and time are finite.
void judge_recorded(const Value& value) {
  plan::RecordedStep step = plan::read_recorded(value);
  const std::string written = dump_json(plan::recorded_value(step));
  require(dump_json(plan::recorded_value(plan::read_recorded(parse_json(written, "written")))) == written);
  const plan::Model model = plan::model_of_recorded(std::move(step), "fuzzed");
  plan::Plan plan;
  plan.mesh = layout::parse_mesh("dp_shard=2");
  plan.strategy = Strategy::full_shard;
  plan.sequence = model.positions;
  plan::cut_plan(model, plan);
  require(std::isfinite(plan::largest(plan::memory_by_rank(model, plan, 0)).first.total()));
  const plan::Cluster cluster = plan::parse_cluster("2xH100/2");
  require(std::isfinite(plan::step_time(model, plan, plan::elements_of(model, 1, 1), cluster).total()));
}

void judge_model(const Value& value) {
  if (plan::is_recorded(value)) return judge_recorded(value);
  const plan::Model model = plan::read_model(value);
  const double active = plan::active_parameters(model);
  require(active > 0 && std::isfinite(active));
  if (model.layers * (model.experts ? model.experts->count : 1) > 4096) return;  // valid, but slow to list
  require(plan::parameter_count(model) > 0);
  plan::Plan plan;
  plan.mesh = layout::parse_mesh("dp_shard=2,tp=2");
  plan.strategy = Strategy::full_shard;
  plan.sequence = 64;
  plan::cut_plan(model, plan);
  const plan::Cluster cluster = plan::parse_cluster("4xH100");
  const double bytes = plan::largest(plan::memory_by_rank(model, plan, 0)).first.total();
  require(bytes > 0 && std::isfinite(bytes));
  const double seconds = plan::step_time(model, plan, plan::elements_of(model, 2, 1), cluster).total();
  require(seconds > 0 && std::isfinite(seconds));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const Value value = parse_json(text, "fuzzed");
    if (data[0] % 2 == 0) {
      judge_model(value);
    } else {
      const plan::Cluster cluster = plan::read_hardware(value);
      const std::string written = dump_json(plan::hardware_value(cluster));
      require(dump_json(plan::hardware_value(plan::read_hardware(parse_json(written, "written")))) == written);
    }
  } catch (const InputError&) {
  }
  return 0;
}
