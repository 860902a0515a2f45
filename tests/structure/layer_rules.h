#pragma once
/// \file
/// The layer rules of docs/architecture.md as a function of a source tree. Includes are read from the text, so
/// preprocessor conditions do not matter.

#include <string>
#include <vector>

namespace tessera::structure {

/// Checks every source file under `root`/tessera and `root`/tools. Returns one line per violation, sorted:
/// "tessera/nn/a.h:3: <tessera/train/b.h>: rule". An empty result means that the tree obeys the rules. Rules:
///  - a layer includes itself and the layers below it; the umbrella tessera/tessera.h may include everything; no layer
///  includes the umbrella or the C interface; checkpoint does not include launch, and train/core does not include
///  train/loop; nothing under tessera/ includes tools/, tests/, bench/ or examples/;
///  - the torch-free layers, the kernels and the program (tools/tessera except its torch/) include no LibTorch header,
///  and the program includes no layer that needs LibTorch;
///  - torch/torch.h is included nowhere, Gloo's headers only in tessera/comm/gloo.cpp, fmt and spdlog nowhere
///  (LibTorch's wheel ships other versions).
/// Throws std::runtime_error if root/tessera contains no source file.
std::vector<std::string> check_tree(const std::string& root);

}  // namespace tessera::structure
