#pragma once
/// \file
/// Detects whether the contents of a model's folder have changed, without reading all of it.

#include <string>

namespace tessera::checkpoint {

/// "2 files, 548105171 bytes, contents 5f3a9c0b12de4477" for the weights and the config.json in a folder (or one file
/// of weights): names, sizes and a hash of 64 evenly spaced pieces of 4 KiB of each file, including its start and end;
/// files of up to 1 MiB are hashed whole. Weights that were trained further, or that belong to a different model, give
/// a different text. Throws InputError for an unreadable file. Empty if the folder or file does not exist.
std::string describe_weights(const std::string& place);

}  // namespace tessera::checkpoint
