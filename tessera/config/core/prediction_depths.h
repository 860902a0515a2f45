#pragma once
/// \file
/// Multi-token prediction in a config.json: how many depths a model has (models/decoders/prediction.h).

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera::config {

/// config.json's mtp_num_layers; 0 where it is absent. DeepSeek-V3's num_nextn_predict_layers does not ask for depths:
/// transformers leaves those weights aside, and so does a model here that mtp_num_layers does not ask of. Throws
/// InputError "file:line:column: ..." for what is no number from 0 to 16, for a family without depths, and beside
/// learned positions, which Megatron-LM refuses, too.
std::int64_t prediction_depths(const Value& hf_config);

}  // namespace tessera::config
