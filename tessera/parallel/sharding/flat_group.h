#pragma once
/// \file
/// parallel/sharding/: the sharding engine: parameters in flat buffers, gathered when they are used; gradients reduced
/// to shards.
///
/// One flat buffer of a unit: the places of its parameters, this rank's shard of them, and the whole buffer while it is
/// gathered. Two forms:
///
///   sharded                shard [padded / S] stays; whole [padded] comes from the pool, and goes back to it
///   stays whole (ZeRO-1/2) whole [padded] stays; the shard is this rank's slice of it (with another compute
///                          dtype: memory of its own)
///
/// S = ranks of the shard group. All-gather writes the whole buffer in place; the module's parameters are views of it.

#include <tessera/comm/group.h>
#include <tessera/layout/flat.h>
#include <tessera/nn/moe/source_gradients.h>
#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/dispatch/module_units.h>
#include <tessera/parallel/sharding/local_parts.h>
#include <tessera/parallel/sharding/pool.h>

#include <c10/core/TensorImpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::parallel {

/// What all flat groups of an engine share.
struct ShardingContext {
  comm::Group data_parallel;    ///< all ranks: S x R
  comm::Group shards;           ///< the S ranks that hold the parts of one replica
  comm::Group replicas;         ///< the R ranks that hold the same part
  comm::Group expert_replicas;  ///< ranks outside that replicate the non-expert parameters (GradientGroups)
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< experts' gradients by source (GradientGroups)
  BufferPool pool;
  Materializer* materializer = nullptr;  ///< entered by every operator that reads whole parameters
  Materializer* writes = nullptr;        ///< entered by every operator on a local part
  /// One version for all local parts: an optimizer that changes any of them in place is seen by one look.
  c10::VariableVersion shard_version{0};
  std::optional<at::ScalarType> param_dtype = {};  ///< ShardingOptions::param_dtype
  bool sync = false;                               ///< construction sends rank 0's values to all
  std::function<at::Tensor(at::IntArrayRef, at::TensorOptions)> allocate_shard = {};             ///< zero-filled
  std::function<bool(const std::string&, at::IntArrayRef, std::int64_t, at::Tensor)> load = {};  ///< ShardingOptions
};

class FlatGroup {
 public:
  struct Member {
    std::string name;
    at::Tensor parameter;  ///< the module's own
    std::size_t index;     ///< in ModuleParameters::parameters
    std::vector<std::int64_t> sizes;
    std::int64_t offset = 0, numel = 0;  ///< in the flat buffer
    std::int64_t begin = 0;              ///< first element of the parameter that this rank holds
    at::Tensor local = {};               ///< [held elements], a view of the shard; a leaf that requires grad if trained
    const void* memory = nullptr;        ///< address of `local`, for check_owned()
  };

  /// Takes over the parameters: copies this rank's part (or loads it), makes them views of the managed storage.
  /// Parameters hold their values, the same on all ranks, unless `load` provides them.
  FlatGroup(ShardingContext& context, const GroupPlan& plan, const ModuleParameters& module);
  /// Parameters that the module still has become NaN, expanded without memory; restore() first to keep the values.
  ~FlatGroup();
  FlatGroup(const FlatGroup&) = delete;
  FlatGroup& operator=(const FlatGroup&) = delete;

  /// Starts the all-gather. Collective over the shard group.
  void start_gather();
  /// Waits; the whole parameters can be read afterwards.
  void finish_gather();
  /// Takes part in a gather whose result only other ranks need. Collective.
  void contribute();
  /// Drops the whole parameters; where they stay, they cannot be read until the next gather.
  void drop();
  /// Changes made to the whole buffer go into the shard. While present.
  void write_back();
  /// The parameters get ordinary memory with their values and leave the engine. While present.
  void restore();
  /// Throws Error naming a parameter, or a part of one, whose memory somebody replaced.
  void check_owned() const;

  const std::string& name() const { return name_; }
  std::size_t unit() const { return unit_; }
  bool trained() const { return trained_; }
  bool shared_by_experts() const { return shared_by_experts_; }
  bool root() const { return root_; }
  bool stays_whole() const { return stays_whole_; }
  const layout::FlatLayout& flat_layout() const { return layout_; }
  const std::vector<Member>& members() const { return members_; }
  at::ScalarType dtype() const { return dtype_; }  ///< type of whole parameters
  at::ScalarType shard_dtype() const { return shard_dtype_; }
  const at::Tensor& shard() const { return shard_; }  ///< [padded / S]
  const at::Tensor& whole() const { return stays_whole_ ? whole_ : storage_->buffer(); }
  bool present() const { return storage_->present(); }
  layout::Range held() const { return held_; }
  std::int64_t numel() const;  ///< without padding

  /// A plain view [n] of memory laid out like the shard: member `m`'s part of it.
  at::Tensor part_of(const at::Tensor& like_shard, std::size_t m) const;
  /// [padded]: every rank's memory that is laid out like the shard, in its dtype. Collective over the shard group.
  at::Tensor gather(const at::Tensor& like_shard) const;
  /// The whole of member `m` (its sizes), of which every rank has its part. Collective.
  at::Tensor gather_member(std::size_t m, const at::Tensor& part) const;

 private:
  at::Tensor own_slice(const at::Tensor& whole) const;
  void take_values();

  ShardingContext& context_;
  std::string name_;
  std::size_t unit_;
  bool trained_, stays_whole_, shared_by_experts_, root_;
  at::ScalarType dtype_, shard_dtype_;
  layout::FlatLayout layout_;
  layout::Range held_;
  std::vector<Member> members_;
  std::unique_ptr<ManagedStorage> storage_;
  at::Tensor whole_;  ///< [padded] where it stays
  at::Tensor shard_;
  std::unique_ptr<LocalParts> parts_;  ///< the local parts of the shard
  at::Tensor gathering_;               ///< the buffer that a started gather fills
  comm::Work work_;
};

}  // namespace tessera::parallel
