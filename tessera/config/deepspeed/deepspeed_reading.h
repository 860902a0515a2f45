#pragma once
/// \file
/// One DeepSpeed file while it is being read: filled by deepspeed.cpp and used by the parts (batch sizes, precision,
/// optimizer and schedule, ZeRO, communication and monitors).

#include <tessera/config/deepspeed/deepspeed_rows.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace tessera::config::deepspeed {

class Reading {
 public:
  /// `alone`: there are no other sources (resolve_deepspeed).
  Reading(const Resolved& so_far, Problems& problems, bool alone)
      : to(problems), so_far(so_far), problems(problems), alone(alone) {}

  /// The value of an acting key (older spellings are stored under the current one); nullptr: absent, null, or "auto".
  const Value* value(std::string_view path) const;
  bool is_auto(std::string_view path) const;
  /// The same, converted to the key's type, which has been checked.
  std::optional<std::int64_t> whole(std::string_view path) const;
  std::optional<double> number(std::string_view path) const;
  std::optional<bool> flag(std::string_view path) const;
  std::optional<std::string> text(std::string_view path) const;

  /// Whether another source gives the setting explicitly.
  bool given_elsewhere(std::string_view setting) const;
  /// Returns false, after reporting a problem in Hugging Face's words, if another source explicitly gives a different
  /// value. `hf`: their name of the setting; empty: ours.
  bool agrees(std::string_view setting, const std::string& path, const std::string& text, const SourcePos& where,
              std::string_view hf = {});
  /// Sets the setting, if it agrees with the other sources.
  void say(std::string_view setting, const std::string& path, const std::string& text, const SourcePos& where,
           std::string_view hf = {});
  void say(std::string_view setting, const std::string& path, const Value& value, std::string_view hf = {});
  /// Sets DeepSpeed's default for a setting that the file leaves open, unless another source gives it explicitly.
  void otherwise(std::string_view setting, const std::string& path, const std::string& text, const SourcePos& where);
  /// Adds the key to the single note about keys without effect.
  void without_effect(const std::string& path, std::string_view why, const SourcePos& where);

  /// "- ds KEY=V vs hf NAME=V": transformers' wording.
  static std::string mismatch(const std::string& path, const std::string& theirs, std::string_view hf,
                              const std::string& ours);
  /// "[0.9, 0.999]", "8", "AdamW": a value as formatted in transformers' messages.
  static std::string shown(const Value& value);

  /// Number of data-parallel ranks: num_processes / (pp_size x tp_size x cp_size), from the file or other sources.
  /// num_processes may come from any launcher's WORLD_SIZE (launch/cli/job_variables.h); 1 if it is not given.
  std::int64_t processes() const;

  Translator to;
  const Resolved& so_far;
  Problems& problems;
  const bool alone;
  std::map<std::string, const Value*, std::less<>> said;              ///< acting keys by path, sections included
  std::map<std::string, std::vector<std::string>, std::less<>> idle;  ///< reason -> "key (line 3)"
};

void read_mesh(Reading& r);                  // deepspeed_batch.cpp
void read_batch_sizes(Reading& r);           // deepspeed_batch.cpp
void read_precision(Reading& r);             // deepspeed_precision.cpp
void read_communication(Reading& r);         // deepspeed_precision.cpp
void read_optimizer(Reading& r);             // deepspeed_optimizer.cpp
void read_scheduler(Reading& r);             // deepspeed_scheduler.cpp
void read_zero(Reading& r);                  // deepspeed_zero.cpp
void read_autotuning(Reading& r);            // deepspeed_autotuning.cpp
void read_tensorboard(Reading& r);           // deepspeed_precision.cpp
void read_compression_training(Reading& r);  // deepspeed_compression.cpp
void read_block_routing(Reading& r);         // deepspeed_compression.cpp

/// Values that transformers substitutes for "auto", from the model's hidden size h.
struct HiddenSizeValues {
  std::int64_t reduce_bucket_size;           ///< h h
  std::int64_t prefetch_bucket_size;         ///< int(0.9 h h)
  std::int64_t param_persistence_threshold;  ///< 10 h
};
HiddenSizeValues values_of(std::int64_t hidden_size);
/// hidden_size, the largest of hidden_sizes, the same in text_config, or its name in GPT-2 (n_embd), T5 (d_model) and
/// DistilBERT (dim).
std::optional<std::int64_t> hidden_size_of(const Value& model_config);
/// The same for the run's model: config.json of model_name_or_path, or config_name (a file, a folder, a preset) with
/// config_overrides. nullopt: not named yet, or unreadable (which is reported as a problem of the model, not of this
/// file). Throws InputError if it has no hidden size.
std::optional<std::int64_t> hidden_size_of(const ModelConfig& model, const std::vector<std::string>& keys);

}  // namespace tessera::config::deepspeed
