#pragma once
/// \file
/// What saving and loading do where parameters are cut over the ranks of tp (parallel/tensor_parallel.h): weights go
/// whole to the first of these ranks, states are written as they lie, in boxes of the whole tensors.

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

/// The ranks of tp that hold the other parts; empty: nothing of the module is cut.
comm::Group tensor_group(const Sharded& sharded);
/// Whether this rank writes a tensor of which all ranks of tp have the same, or that they bring together.
bool writes_whole(const comm::Group& tensor);
/// Whether ranks of tp hold other parts of a parameter than this one, which may be all of it or nothing (an expert that
/// lies on some of them).
bool lies_in_parts(const ShardedParameter& parameter);
/// Whether this rank writes what it holds of a parameter: of ranks of tp that hold the same the first does.
bool writes_part(const ShardedParameter& parameter);
/// The shape of a parameter, before any cut.
std::vector<std::int64_t> saved_shape(const ShardedParameter& parameter);

/// A visitor for Sharded::gather_to_owners() and gather_like_to_owners() that waits for all pieces of a part, puts the
/// parts of all ranks of tp together (collective over them: all deliver the same), and on the rank that writes hands on
/// the whole tensor. Without tp: `keep` itself.
Sharded::PieceVisitor of_whole_tensors(const Sharded& sharded, const comm::Group& tensor, Sharded::PieceVisitor keep);

/// What of a whole tensor a rank holds that has elements [begin, begin + count) of its part.
std::vector<layout::TensorBox> held_boxes(const ShardedParameter& parameter, std::int64_t begin, std::int64_t count);
/// The elements of a box, contiguous, out of a tensor that has elements [begin, ...) of the part.
at::Tensor take_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box);
/// Puts them there.
void put_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box,
             const at::Tensor& elements);

/// Fills `held`, a tensor laid out like this rank's part of the parameter (a state), from the whole one of that name.
/// Throws what StoredState::read does.
void read_held(const ShardedParameter& parameter, const checkpoint::StoredState& stored, const std::string& name,
               const at::Tensor& held);

}  // namespace tessera::train
