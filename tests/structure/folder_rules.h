#pragma once
/// \file
/// The order of the folders within a layer, as a function of a source tree.

#include <string>
#include <vector>

namespace tessera::structure {

/// Returns the include cycles among the folders of a layer, one per line: "tessera/comm: c10d -> ring
/// (tessera/comm/c10d/a.h) -> c10d (tessera/comm/ring/b.cpp)". The headers directly in a layer are its ground: folders
/// include them, and they include no folder that includes them. The sources directly in a layer, and the header with
/// its name (tessera/nn/nn.h), are its front and may include anything. Layers in `unordered` are skipped.
std::vector<std::string> folder_circles(const std::string& root, const std::vector<std::string>& unordered = {});

}  // namespace tessera::structure
