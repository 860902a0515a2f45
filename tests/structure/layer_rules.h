#pragma once
/// \file
/// The rules of docs/architecture.md, layers, as a function of a source tree. Includes are read from the text: what the
/// compiler sees behind them does not matter, an arrow is an arrow.

#include <string>
#include <vector>

namespace tessera::structure {

/// Checks every source file under `root`/tessera and `root`/tools. Returns one line per violation, sorted:
/// "tessera/nn/a.h:3: <tessera/train/b.h>: rule". An empty result means that the tree obeys. Rules:
///  - a layer includes itself and the layers below it; the umbrella tessera/tessera.h may include everything and is
///    included by no layer, nor is the C interface; checkpoint does not include launch, nor train/core train/loop;
///    nothing under tessera/ includes tools/, tests/, bench/ or examples/;
///  - the torch-free layers, the kernels and the program (tools/tessera except its torch/) include no LibTorch header,
///    and the program no layer that needs LibTorch;
///  - torch/torch.h nowhere; Gloo's headers only in tessera/comm/gloo.cpp; fmt and spdlog nowhere (LibTorch's wheel
///    ships other versions);
/// Throws std::runtime_error when root/tessera holds no source file at all.
std::vector<std::string> check_tree(const std::string& root);

}  // namespace tessera::structure
