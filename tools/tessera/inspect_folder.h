#pragma once
/// \file
/// What the JSON files of a model folder say, added to an inspection. Files that are absent add nothing.

#include <tools/tessera/inspection.h>

#include <string>

namespace tessera::tool {

void add_model_config(Inspection& found, const std::string& folder);  ///< config.json
void add_adapter(Inspection& found, const std::string& folder);       ///< adapter_config.json
void add_tokenizer(Inspection& found, const std::string& folder);     ///< tokenizer.json, tokenizer_config.json
/// trainer_state.json, tessera_state.json, optimizer state, manifest.json (sizes are compared, no checksums),
/// checkpoint-N.
void add_training_state(Inspection& found, const std::string& folder);

}  // namespace tessera::tool
