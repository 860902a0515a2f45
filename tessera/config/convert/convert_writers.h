#pragma once
/// \file
/// The writers of convert.h, one for each format, and their common parts. Each takes from a Plan the settings that its
/// format can express; the rest remains in the plan.

#include <tessera/config/convert/convert.h>
#include <tessera/config/core/translation.h>

namespace tessera::config {

/// The settings to be written, and their origins.
class Plan {
 public:
  explicit Plan(const Resolved& resolved);

  /// Removes the setting from those to be written; false if it was not among them (it has its default, or was taken
  /// before).
  bool take(std::string_view name);
  bool has(std::string_view name) const;
  Value value(std::string_view name) const;  ///< the configuration's value, whether or not it is to be written
  const std::vector<std::pair<std::string, std::string>>& left() const { return settings_; }
  /// One line for each remaining setting.
  std::vector<std::string> lost(const std::string& why) const;

  const RunConfig& config;

 private:
  std::vector<std::pair<std::string, std::string>> settings_;
};

Converted to_tessera(const Resolved& resolved);
Converted to_accelerate(const Resolved& resolved);
Converted to_deepspeed(const Resolved& resolved);
Converted to_training_args(const Resolved& resolved);
Converted to_fsdp_config(const Resolved& resolved);

/// The members sorted by name, as PyYAML writes them.
Value sorted(const Value& object);
/// The keys of an fsdp_config (with the prefix "fsdp_" if `prefix`), as read by accelerate and transformers: version 1,
/// or version 2 for settings that only it can express (including replicas as sizes). Takes the settings it writes from
/// the plan.
Value fsdp_section(Plan& plan, bool prefix, bool sizes_say_copies = false);
/// DeepSpeed's JSON for the settings in the plan, taking those it writes. `automatic`: settings that TrainingArguments
/// also contain become "auto" and are not taken.
Value deepspeed_json(Plan& plan, bool automatic);
/// Whether only DeepSpeed's terms, not FSDP's, can express the sharding: ZeRO-1, ZeRO-2, offload of the optimizer
/// alone.
bool speaks_deepspeed(const RunConfig& config);

}  // namespace tessera::config
