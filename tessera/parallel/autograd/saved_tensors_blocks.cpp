#include <tessera/parallel/autograd/saved_tensors_blocks.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera::parallel {

void Account::add(std::int64_t original, std::int64_t packed) {
  ++tensors_;
  original_ += original;
  const std::int64_t now = packed_ += packed;
  for (std::int64_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) {
  }
}

SavedBytes Account::read() const {
  return {.tensors = tensors_, .original = original_, .packed = packed_, .packed_peak = peak_};
}

/// A block and, while it is still in use, the memory it was last read into.
struct BlockPolicy::Shared {
  std::mutex mutex;
  std::unique_ptr<PackedBlock> block;
  c10::weak_intrusive_ptr<c10::StorageImpl> last =
      c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());

  c10::Storage read() {
    const std::lock_guard lock(mutex);
    if (auto storage = last.lock()) return c10::Storage(std::move(storage));
    const at::Tensor flat = block->read();
    last = flat.storage().getWeakStorageImpl();
    return flat.storage();
  }
};

namespace {

/// True when elements overlap in memory (expanded): a copy would be larger than the original.
bool overlaps(const at::Tensor& tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) return true;
  return false;
}

/// The elements of dense memory, in memory order.
at::Tensor flat_view(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

}  // namespace

BlockPolicy::BlockPolicy(std::int64_t min_bytes, std::vector<at::Tensor> keep)
    : min_bytes_(min_bytes), keep_(std::move(keep)) {}

std::unique_ptr<PackedTensor> BlockPolicy::pack(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !(tensor.is_cpu() || tensor.is_cuda()) ||
      tensor.is_conj() || tensor.is_neg() || bytes < min_bytes_ || bytes == 0 || overlaps(tensor) || !takes(tensor))
    return nullptr;
  const bool kept = std::any_of(keep_.begin(), keep_.end(), [&](const at::Tensor& other) {
    return other.defined() && other.has_storage() && other.is_alias_of(tensor);
  });
  if (kept) return nullptr;

  class Packed final : public PackedTensor {
   public:
    Packed(std::shared_ptr<Shared> block, const at::Tensor& like)
        : block_(std::move(block)),
          sizes_(like.sizes().vec()),
          strides_(like.strides().vec()),
          options_(like.options()) {}
    at::Tensor unpack() override { return at::empty({0}, options_).set_(block_->read(), 0, sizes_, strides_); }

   private:
    std::shared_ptr<Shared> block_;
    std::vector<std::int64_t> sizes_, strides_;
    at::TensorOptions options_;
  };

  if (tensor.is_non_overlapping_and_dense()) return std::make_unique<Packed>(find_or_pack(tensor), tensor);
  const at::Tensor dense = tensor.contiguous();
  auto own = std::make_shared<Shared>();
  own->block = pack_block(flat_view(dense));
  return std::make_unique<Packed>(std::move(own), dense);
}

std::shared_ptr<BlockPolicy::Shared> BlockPolicy::find_or_pack(const at::Tensor& tensor) {
  const Key key{tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.numel(), tensor.scalar_type(),
                static_cast<std::uint32_t>(tensor._version())};
  const std::lock_guard lock(mutex_);
  if (const auto place = entries_.find(key); place != entries_.end() && !place->second.storage.expired())
    if (auto shared = place->second.block.lock()) {
      account_->again();
      return shared;
    }
  auto shared = std::make_shared<Shared>();
  shared->block = pack_block(flat_view(tensor));
  forget_dead();
  entries_.insert_or_assign(key, Entry{tensor.storage().getWeakStorageImpl(), shared});
  return shared;
}

void BlockPolicy::forget_dead() {
  if (entries_.size() < sweep_at_) return;
  std::erase_if(entries_,
                [](const auto& item) { return item.second.storage.expired() || item.second.block.expired(); });
  sweep_at_ = std::max<std::size_t>(64, 2 * entries_.size());
}

namespace {

class CountingPolicy final : public SavedTensorPolicy {
 public:
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    class Counted final : public PackedTensor {
     public:
      Counted(const at::Tensor& tensor, std::shared_ptr<Books> books)
          : tensor_(tensor), books_(std::move(books)), storage_(tensor.storage().unsafeGetStorageImpl()) {
        const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
        const std::lock_guard lock(books_->mutex);
        if (books_->uses[storage_]++ == 0)
          books_->account.add(bytes, bytes);
        else
          books_->account.again();
      }
      ~Counted() override {
        const std::lock_guard lock(books_->mutex);
        const auto place = books_->uses.find(storage_);
        if (--place->second > 0) return;
        books_->uses.erase(place);
        books_->account.remove(static_cast<std::int64_t>(storage_->nbytes()));
      }
      at::Tensor unpack() override { return tensor_.get(); }

     private:
      Versioned tensor_;
      std::shared_ptr<Books> books_;
      c10::StorageImpl* storage_;
    };
    if (!tensor.has_storage()) return nullptr;
    return std::make_unique<Counted>(tensor, books_);
  }
  SavedBytes bytes() const override { return books_->account.read(); }

 private:
  struct Books {
    std::mutex mutex;
    std::map<const c10::StorageImpl*, int> uses;
    Account account;
  };
  std::shared_ptr<Books> books_ = std::make_shared<Books>();
};

}  // namespace

std::shared_ptr<SavedTensorPolicy> counting_policy() { return std::make_shared<CountingPolicy>(); }

}  // namespace tessera::parallel
