#pragma once
/// \file
/// Whether a model's folder still holds what it held, without reading all of it.

#include <string>

namespace tessera::checkpoint {

/// "2 files, 548105171 bytes, contents 5f3a9c0b12de4477" of the weights and the config.json in a folder (or of one file
/// of weights): names, sizes and a hash of 64 pieces of 4 KiB at equal distances of each file, its beginning and end
/// among them, files of up to 1 MiB whole. Weights that were trained further, or are of another model, give another
/// text. Throws InputError for a file that cannot be read. Empty where there is no such folder or file.
std::string describe_weights(const std::string& place);

}  // namespace tessera::checkpoint
