#pragma once
/// \file
/// The writers behind convert.h: one for each format, and what they share. Each takes from a Plan the settings that its
/// format can say; what is left in the plan is what the format cannot say.

#include <tessera/config/convert/convert.h>
#include <tessera/config/core/translation.h>

namespace tessera::config {

/// The settings that have to be said, and who has said them.
class Plan {
 public:
  explicit Plan(const Resolved& resolved);

  /// Removes the setting from those to be said; false when it was not among them (it has its default, or was taken
  /// before).
  bool take(std::string_view name);
  bool has(std::string_view name) const;
  Value value(std::string_view name) const;  ///< what the configuration has, whether it has to be said or not
  const std::vector<std::pair<std::string, std::string>>& left() const { return settings_; }
  /// One line for each setting that is left.
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

/// The members in the order of their names, as PyYAML writes them.
Value sorted(const Value& object);
/// The keys of an fsdp_config (with the prefix "fsdp_" when `prefix`), as accelerate and transformers read them: of
/// version 1, or of 2 for what only that can say (also copies as sizes). Takes what it says from the plan.
Value fsdp_section(Plan& plan, bool prefix, bool sizes_say_copies = false);
/// DeepSpeed's JSON for what the plan has; takes what it says. `automatic`: what TrainingArguments say, too, is "auto"
/// and not taken.
Value deepspeed_json(Plan& plan, bool automatic);
/// Whether DeepSpeed's words, not FSDP's, say how the run is divided: ZeRO-1, ZeRO-2, offload of the optimizer alone.
bool speaks_deepspeed(const RunConfig& config);

}  // namespace tessera::config
