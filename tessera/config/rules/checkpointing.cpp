#include <tessera/config/rules/checkpointing.h>

#include <tessera/base/error.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/core/overrides.h>

#include <vector>

namespace tessera::config {

layout::CheckpointPlan parse_checkpoint_plan(const std::string& text) {
  layout::CheckpointPlan plan;
  const std::string flag = "--gradient_checkpointing_kwargs";
  for (const auto& [key, value] : parse_overrides(text, flag)) {
    if (key == "every") {
      plan.every = value.as_int();
      if (plan.every < 1) throw InputError(concat(flag, ": every is ", plan.every, "; it must be at least 1"));
    } else if (key == "names") {
      plan.names = value.as_string();
      (void)Pattern(concat(flag, ": names"), plan.names);
    } else if (key == "part") {
      plan.part = layout::parse_checkpoint_part(value.as_string());
    } else if (key == "preserve_rng_state") {
      plan.preserve_random = value.as_bool();
    } else if (key == "early_stop") {
      plan.early_stop = value.as_bool();
    } else if (key == "offload_inputs_to") {
      plan.offload_inputs_to = value.as_string();
    } else if (key == "use_reentrant") {
      (void)value.as_bool();
    } else {
      const std::vector<std::string> known = {
          "every", "names", "part", "preserve_rng_state", "early_stop", "offload_inputs_to", "use_reentrant"};
      const auto near = nearest(key, known);
      throw InputError(concat(flag, ": unknown key ", key,
                              near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(known))));
    }
  }
  return plan;
}

}  // namespace tessera::config
