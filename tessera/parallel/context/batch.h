#pragma once
/// \file
/// Cuts a batch of whole rows to this rank's part.

#include <tessera/data/objective.h>
#include <tessera/parallel/context/groups.h>

namespace tessera {

/// This rank's tokens of every row of `batch`, which is the same on all ranks of groups.all: ids, labels and types are
/// cut in the same way (layout::tokens_of), labels are shifted before they are cut into part->targets, and positions
/// are those of each token in its document. Rows that cannot be cut are padded first, with tokens at position 0 that no
/// scored token attends to. The counts are those of the part; their sums over the ranks are the batch's counts.
/// document_starts and lengths become those of the padded rows. One rank: returns the batch unchanged. Not collective;
/// tensors are on the CPU.
data::Batch cut_batch(const data::Batch& batch, const ContextGroups& groups, data::Objective::Kind objective);

}  // namespace tessera
