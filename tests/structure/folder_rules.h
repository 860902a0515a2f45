#pragma once
/// \file
/// The order of the folders inside a layer, as a function of a source tree.

#include <string>
#include <vector>

namespace tessera::structure {

/// The folders of a layer that include each other in a circle, as one line each: "tessera/comm: c10d -> ring
/// (tessera/comm/c10d/a.h) -> c10d (tessera/comm/ring/b.cpp)". A layer's own headers, beside its folders, are its
/// ground: folders include them, and they include no folder that does. Its own sources, and the header of its name
/// (tessera/nn/nn.h), are its front and include what they like. Layers in `unordered` are left out.
std::vector<std::string> folder_circles(const std::string& root, const std::vector<std::string>& unordered = {});

}  // namespace tessera::structure
