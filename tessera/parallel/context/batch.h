#pragma once
/// \file
/// From a batch of whole rows to this rank's part of it.

#include <tessera/data/objective.h>
#include <tessera/parallel/context/groups.h>

namespace tessera {

/// This rank's tokens of every row of `batch`, which all ranks of groups.all have: ids, labels and types cut alike
/// (layout::tokens_of), labels shifted before they are cut into part->targets, positions of each token in its document.
/// Rows that cannot be cut are filled up first, with tokens that no scored token sees and that have position 0. The
/// counts are of the part: summed over the ranks they are the batch's. document_starts and lengths become those of the
/// filled rows. One rank: the batch as it is. Not collective; tensors are on the CPU.
data::Batch cut_batch(const data::Batch& batch, const ContextGroups& groups, data::Objective::Kind objective);

}  // namespace tessera
