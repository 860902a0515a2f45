#pragma once
/// \file
/// Base of policies that keep a copy. Memory that several operations save (the input of three projections, and its
/// views) is copied only once.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/autograd/saved_tensors.h>

#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

namespace tessera::parallel {

/// Counts for SavedBytes; shared by a policy and its packed tensors.
class Account {
 public:
  void add(std::int64_t original, std::int64_t packed);
  void remove(std::int64_t packed) { packed_ -= packed; }
  void again() { ++tensors_; }  ///< counts a tensor whose block is already counted
  SavedBytes read() const;

 private:
  std::atomic<std::int64_t> tensors_{0}, original_{0}, packed_{0}, peak_{0};
};

/// One copied memory block.
class PackedBlock {
 public:
  virtual ~PackedBlock() = default;
  /// A newly allocated 1-D tensor of the block's elements.
  virtual at::Tensor read() = 0;
};

/// A policy on dense memory: accepts strided tensors of at least min_bytes.
class BlockPolicy : public SavedTensorPolicy {
 public:
  BlockPolicy(std::int64_t min_bytes, std::vector<at::Tensor> keep);
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) final;
  SavedBytes bytes() const final { return account_->read(); }

 protected:
  virtual bool takes(const at::Tensor& tensor) const = 0;
  /// `flat`: 1-D, contiguous. Adds the bytes it keeps to the account.
  virtual std::unique_ptr<PackedBlock> pack_block(const at::Tensor& flat) = 0;

  const std::shared_ptr<Account> account_ = std::make_shared<Account>();

 private:
  struct Shared;
  /// Storage address, offset, elements, dtype and version: equal for tensors with the same values. Entry also holds the
  /// storage weakly, since the address may be reused.
  using Key = std::tuple<const void*, std::int64_t, std::int64_t, at::ScalarType, std::uint32_t>;
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::weak_ptr<Shared> block;
  };

  std::shared_ptr<Shared> find_or_pack(const at::Tensor& tensor);
  void forget_dead();

  const std::int64_t min_bytes_;
  const std::vector<at::Tensor> keep_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::size_t sweep_at_ = 64;
};

}  // namespace tessera::parallel
