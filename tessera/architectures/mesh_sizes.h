#pragma once
/// \file
/// The sizes of an architecture that a mesh must fit.

#include <tessera/architectures/spec.h>
#include <tessera/layout/mesh_rules.h>

namespace tessera::architectures {

/// `intermediate` is 0 if there are experts: their MLPs have several sizes, each of which is checked when it is cut
/// (layout/tensor_plan.h).
inline layout::ModelSizes mesh_sizes(const ModelSpec& spec) {
  return {.name = spec.type,
          .heads = spec.heads,
          .key_heads = spec.key_heads,
          .intermediate = spec.experts ? 0 : spec.inner,
          .vocabulary = spec.vocabulary};
}

}  // namespace tessera::architectures
