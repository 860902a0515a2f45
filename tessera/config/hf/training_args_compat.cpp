// --compat v4|v5: which version's defaults apply.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/hf/training_args.h>

namespace tessera::config {
namespace {

// Also contains defaults on which versions 4 and 5 agree but that differ from ours. For words with different meanings
// (fsdp_config's version), see sharding.cpp. Names that only one version has (warmup_ratio, group_by_length,
// save_safetensors, ...) are always accepted; optim is adamw_torch in 4 and adamw_torch_fused in 5, which are the same
// optimizer here.
constexpr CompatDefault defaults[] = {
    {"output_dir", "trainer_output", "trainer_output"},
    {"report_to", "tensorboard", "none"},  // v4: all installed trackers
    {"log_format", "hf", "hf5"},
};

}  // namespace

std::span<const CompatDefault> compat_defaults() { return defaults; }

void apply_compat(Resolved& resolved) {
  const Origin& origin = resolved.origin("compat");
  if (origin.is_default()) return;
  const Compat version = resolved.values.files.compat;
  for (const CompatDefault& row : defaults) {
    if (!resolved.is_default(row.setting)) continue;
    find_field(row.setting)->set(resolved.values, version == Compat::v4 ? row.v4 : row.v5);
    resolved.origins[std::string(row.setting)] = Origin::derived(concat(origin, " ", version));
  }
}

}  // namespace tessera::config
