// Recomputation in backward -> gradient_checkpointing and its kwargs.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/text.h>

namespace tessera::config {

void translate_megatron_recompute(MegatronArguments& a) {
  const auto word = a.word("recompute_granularity", {"full", "selective"});
  const bool attention = a.has("recompute_activations");
  if (word == "full" && attention)
    return a.problem(
        "recompute_activations",
        "recomputes only attention, but --recompute-granularity full recomputes whole blocks: keep one of them",
        {"gradient_checkpointing"});
  constexpr const char* offload = "fine_grained_activation_offloading";
  if (!word && !attention && a.has(offload))
    return a.problem(offload,
                     "needs --recompute-granularity: only the inputs kept to recompute blocks, or their attention, are "
                     "moved to the host; use --recompute-granularity full or selective, or remove it",
                     {"gradient_checkpointing_kwargs"});
  if (!word && !attention) return;
  const char* from = attention ? "recompute_activations" : "recompute_granularity";
  a.give(from, "gradient_checkpointing", "true");
  std::vector<std::string> how;
  if (word != "full") how.emplace_back("part=attention");
  if (a.has(offload)) {
    how.emplace_back("offload_inputs_to=host");
    a.note(offload,
           concat("moves to the host only the inputs kept to recompute ", word == "full" ? "blocks" : "their attention",
                  ": results are the same, but memory differs"));
  }
  if (!how.empty()) a.give(a.has(offload) ? offload : from, "gradient_checkpointing_kwargs", join(how, ","));
}

}  // namespace tessera::config
