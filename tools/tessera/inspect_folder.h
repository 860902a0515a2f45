#pragma once
/// \file
/// Adds the contents of a model folder's JSON files to an inspection. Missing files add nothing.

#include <tools/tessera/inspection.h>

#include <string>

namespace tessera::tool {

void add_model_config(Inspection& found, const std::string& folder);  ///< config.json
void add_adapter(Inspection& found, const std::string& folder);       ///< adapter_config.json
void add_tokenizer(Inspection& found, const std::string& folder);     ///< tokenizer.json, tokenizer_config.json
/// trainer_state.json, tessera_state.json, optimizer state, manifest.json (sizes are compared, checksums are not),
/// checkpoint-N.
void add_training_state(Inspection& found, const std::string& folder);

}  // namespace tessera::tool
