#pragma once
/// \file
/// Sources of a model: a config.json, a folder with one, the name of a well-known model, or numbers.

#include <tessera/plan/model.h>

#include <string>

namespace tessera::plan {

/// Returns architectures::published_config(name); throws InputError for an unknown name (with the nearest one).
Value preset_config(const std::string& name);

/// A file (config.json under any name, or a recorded step: recorded.h), a folder with a config.json, or a preset; case,
/// '_' and '-' are ignored in a preset's name. Throws InputError.
Model find_model(const std::string& text);

/// A Llama or GPT-2 with these sizes. 0: the family's default.
struct ModelNumbers {
  std::int64_t layers = 0, hidden = 0, heads = 0, key_heads = 0, inner = 0, vocabulary = 0, positions = 0;
  std::int64_t experts = 0, top_k = 0, expert_inner = 0;
  bool gpt2 = false;
};
/// Throws InputError if layers or hidden are missing, and like read_model().
Model model_of_numbers(const ModelNumbers& numbers);

}  // namespace tessera::plan
