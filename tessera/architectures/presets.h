#pragma once
/// \file
/// Models by name: small ones to train from scratch (--config_name), and published ones, whose sizes plans need.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::architectures {

/// Returns the complete config.json of "gpt2" or of a small model "TYPE-tiny" (Architecture::preset); nullopt for any
/// other name.
std::optional<Value> model_preset(const std::string& name);
/// "gpt2, gpt2-tiny, llama-tiny, ..."
std::string model_preset_names();
/// Like model_preset, but throws InputError with the list of names for any other name.
Value known_preset(const std::string& name);

/// The sizes of a model; 0: the family's default, or none.
struct Sizes {
  const char *name, *type;
  std::int64_t layers, hidden, heads, key_heads, head, inner, vocabulary, positions;
  bool tied = false;
  std::int64_t experts = 0, top_k = 0, expert_inner = 0, shared = 0, dense_layers = 0;
};
/// A config.json of these sizes, without dropout.
Value config_of(const Sizes& sizes);

/// Names of published models, in the order of families and sizes.
std::vector<std::string> published_names();
/// Returns the config.json of a published model, limited to sizes; case, '_' and '-' are ignored. nullopt for an
/// unknown name.
std::optional<Value> published_config(const std::string& name);

}  // namespace tessera::architectures
