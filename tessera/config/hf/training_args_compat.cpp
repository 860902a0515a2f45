// --compat v4|v5: whose defaults hold.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>

namespace tessera::config {
namespace {

// What versions 4 and 5 agree about but we do not stands here, too. Where words mean different things (fsdp_config's
// version), see sharding.cpp. Names that only one version has (warmup_ratio, group_by_length, save_safetensors, ...)
// are always understood; optim is adamw_torch in 4 and adamw_torch_fused in 5, which are one optimizer here.
constexpr CompatDefault defaults[] = {
    {"output_dir", "trainer_output", "trainer_output"},
    {"logging_steps", "500", "500"},
    {"report_to", "tensorboard", "none"},  // v4: to all that is installed
    {"log_format", "hf", "hf5"},
};

}  // namespace

std::span<const CompatDefault> compat_defaults() { return defaults; }

void apply_compat(Resolved& resolved) {
  const std::string& origin = resolved.origins.at("compat");
  if (origin == "default") return;
  const Compat version = resolved.values.files.compat;
  for (const CompatDefault& row : defaults) {
    std::string& from = resolved.origins.at(std::string(row.setting));
    if (from != "default") continue;
    find_field(row.setting)->set(resolved.values, version == Compat::v4 ? row.v4 : row.v5);
    from = concat("derived (", origin, " ", version, ")");
  }
}

}  // namespace tessera::config
