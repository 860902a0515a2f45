#pragma once
/// \file
/// parallel/sharding/: the sharding engine: parameters in flat buffers, gathered when they are used; gradients reduced
/// to shards.
///
/// One flat buffer of a unit: the positions of its parameters, this rank's shard of them, and the whole buffer while it
/// is gathered. Two forms:
///
///   sharded                shard [padded / S] stays; whole [padded] is taken from the pool and returned to it
///   stays whole (ZeRO-1/2) whole [padded] stays; the shard is this rank's slice of it (separate memory if the compute
///                          dtype differs)
///
/// S = ranks of the shard group. The all-gather writes the whole buffer in place; the module's parameters are views of
/// it.

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

/// State shared by all flat groups of an engine.
struct ShardingContext {
  comm::Group data_parallel;    ///< all ranks: S x R
  comm::Group shards;           ///< the S ranks that hold the parts of one replica
  comm::Group replicas;         ///< the R ranks that hold the same part
  comm::Group expert_replicas;  ///< other ranks that replicate the non-expert parameters (GradientGroups)
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< experts' gradients by source (GradientGroups)
  BufferPool pool;
  Materializer* materializer = nullptr;  ///< entered by every operator that reads whole parameters
  Materializer* writes = nullptr;        ///< entered by every operator on a local part
  /// One version counter for all local parts, so that an optimizer's in-place change of any of them is detected with
  /// one check.
  c10::VariableVersion shard_version{0};
  std::optional<at::ScalarType> param_dtype = {};  ///< ShardingOptions::param_dtype
  bool sync = false;                               ///< construction broadcasts rank 0's values
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
    std::int64_t offset = 0, numel = 0;  ///< position in the flat buffer
    std::int64_t begin = 0;              ///< first element of the parameter that this rank holds
    at::Tensor local = {};               ///< [held elements], a view of the shard; a leaf that requires grad if trained
    const void* memory = nullptr;        ///< address of `local`, for check_owned()
  };

  /// Takes over the parameters: copies (or loads) this rank's part and makes them views of the managed storage.
  /// Parameters must hold their values, the same on all ranks, unless `load` provides them.
  FlatGroup(ShardingContext& context, const GroupPlan& plan, const ModuleParameters& module);
  /// Parameters that still belong to the module become NaN, expanded without memory; call restore() first to keep the
  /// values.
  ~FlatGroup();
  FlatGroup(const FlatGroup&) = delete;
  FlatGroup& operator=(const FlatGroup&) = delete;

  /// Starts the all-gather. Collective over the shard group.
  void start_gather();
  /// Waits for the gather; the whole parameters can be read afterwards.
  void finish_gather();
  /// Takes part in a gather whose result only other ranks need. Collective.
  void contribute();
  /// Drops the whole parameters; where they stay whole, they cannot be read until the next gather.
  void drop();
  /// Writes changes of the whole buffer into the shard. Call while present.
  void write_back();
  /// Gives the parameters ordinary memory with their values and releases them from the engine. Call while present.
  void restore();
  /// Throws Error that names a parameter, or a part of one, whose memory was replaced.
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
  /// [padded]: gathers every rank's memory that is laid out like the shard, in its dtype. Collective over the shard
  /// group.
  at::Tensor gather(const at::Tensor& like_shard) const;
  /// Gathers the whole of member `m` (its sizes) from every rank's part. Collective.
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
  at::Tensor whole_;  ///< [padded], where parameters stay whole
  at::Tensor shard_;
  std::unique_ptr<LocalParts> parts_;  ///< the local parts of the shard
  at::Tensor gathering_;               ///< the buffer of a gather in flight
  comm::Work work_;
};

}  // namespace tessera::parallel
