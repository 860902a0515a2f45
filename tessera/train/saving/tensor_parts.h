#pragma once
/// \file
/// Saving and loading when parameters are cut over the ranks of tp (parallel/tensor_parallel.h): weights are sent whole
/// to the first of these ranks; states are written as each rank holds them, as boxes of the whole tensors.

#include <ATen/core/Tensor.h>

#include <tessera/checkpoint/stored_state.h>
#include <tessera/comm/group.h>
#include <tessera/layout/tensor_plan.h>
#include <tessera/parallel/fully_shard.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::train {

/// The ranks of tp that hold the other parts; empty: no parameter of the module is cut.
comm::Group tensor_group(const Sharded& sharded);
/// Whether this rank writes a tensor that is the same on all ranks of tp, or that they assemble.
bool writes_whole(const comm::Group& tensor);
/// Whether ranks of tp hold different parts of a parameter, where a part may also be the whole parameter or empty (an
/// expert that only some of them hold).
bool lies_in_parts(const ShardedParameter& parameter);
/// Whether this rank writes its part of a parameter: if several ranks of tp hold the same part, the first one does.
bool writes_part(const ShardedParameter& parameter);
/// The shape of a parameter before cutting.
std::vector<std::int64_t> saved_shape(const ShardedParameter& parameter);

/// A visitor for Sharded::gather_to_owners() and gather_like_to_owners() that collects all pieces of a part, assembles
/// the parts of all ranks of tp (collective over them: all deliver the same pieces), and on the writing rank passes the
/// whole tensor to `keep`. Without tp: `keep` itself.
Sharded::PieceVisitor of_whole_tensors(const Sharded& sharded, const comm::Group& tensor, Sharded::PieceVisitor keep);

/// The boxes of the whole tensor on a rank that has elements [begin, begin + count) of its part.
std::vector<layout::TensorBox> held_boxes(const ShardedParameter& parameter, std::int64_t begin, std::int64_t count);
/// Returns the elements of a box, contiguous, from a tensor that has elements [begin, ...) of the part.
at::Tensor take_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box);
/// Writes the elements of a box back to such a tensor.
void put_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box,
             const at::Tensor& elements);

/// Fills `held`, a tensor laid out like this rank's part of the parameter (a state), from the whole state of that name.
/// Throws the errors of StoredState::read.
void read_held(const ShardedParameter& parameter, const checkpoint::StoredState& stored, const std::string& name,
               const at::Tensor& held);

}  // namespace tessera::train
