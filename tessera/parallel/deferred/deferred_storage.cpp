#include <tessera/parallel/deferred/deferred_storage.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace tessera::parallel {

namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}
using Lock = std::lock_guard<std::recursive_mutex>;

// StorageImpl's flag "reading the pointer is an error" has a public setter but no unsetter; an explicit instantiation
// may name a private member.
template <class Tag, typename Tag::Type member>
struct Reveal {
  friend typename Tag::Type revealed(Tag) { return member; }
};
struct ThrowFlag {
  using Type = bool c10::StorageImpl::*;
  friend Type revealed(ThrowFlag);
};
template struct Reveal<ThrowFlag, &c10::StorageImpl::throw_on_immutable_data_ptr_>;

// key_set_ is protected; only a derived class may form a pointer to it.
struct KeySetOf : c10::TensorImpl {
  static c10::DispatchKeySet c10::TensorImpl::* member() { return &KeySetOf::key_set_; }
};

constexpr const char* absent_text =
    "the data of a deferred tensor was read through its pointer: it was constructed without memory "
    "(tessera::deferred). Give it memory first with tessera::parallel::materialize({tensor}); operators of at:: and "
    "torch:: do so themselves.";

void delete_record(void* context) { delete static_cast<DeferredStorage*>(context); }

c10::DataPtr without_memory(DeferredStorage* record, void* pages) {
  return {pages, record, &delete_record, c10::Device(c10::DeviceType::CPU)};
}

at::Tensor tensor_at(const c10::Storage& storage, const TensorGeometry& geometry) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), geometry.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  return tensor;
}

TensorGeometry geometry_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.dtype()};
}

// The caller must have excluded the key.
void call(const c10::OperatorHandle& op, const at::Tensor& self, std::span<const c10::IValue> others) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  torch::jit::Stack stack{self};
  stack.insert(stack.end(), others.begin(), others.end());
  op.callBoxed(stack);
}

// Uniform and normal numbers are drawn element by element (normal ones in groups of sixteen when contiguous, with
// sixteen more for an incomplete group), so those of a large tensor can be drawn into a small tensor, piece by piece.
constexpr std::int64_t piece = 1 << 14;

bool drawn_piecewise(const c10::OperatorHandle& op, const at::Tensor& self) {
  const std::string& name = op.schema().name();
  return at::isFloatingType(self.scalar_type()) &&
         (name == "aten::uniform_" || (name == "aten::normal_" && self.is_contiguous()));
}

// Runs the operator on scratch memory: the generator among `others` advances as if it had run on `self`.
void draw(const c10::OperatorHandle& op, const at::Tensor& self, std::span<const c10::IValue> others) {
  if (!drawn_piecewise(op, self)) {
    call(op, at::empty_strided(self.sizes(), self.strides(), self.dtype()), others);
    return;
  }
  std::int64_t left = self.numel();
  const at::Tensor scratch = at::empty({std::min(left, 2 * piece)}, self.dtype());
  while (left > 0) {
    const std::int64_t n = left >= 2 * piece ? piece : left;  // the last piece is never tiny
    call(op, scratch.narrow(0, 0, n), others);
    left -= n;
  }
}

}  // namespace

DeferredStorage* DeferredStorage::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(managed_key) || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &delete_record ? static_cast<DeferredStorage*>(data.get_context()) : nullptr;
}

bool DeferredStorage::has(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(managed_key)) return false;
  const Lock lock(mutex());
  return of(tensor) != nullptr;
}

at::Tensor DeferredStorage::make(at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides, at::MemoryFormat format,
                                 at::ScalarType dtype) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  const std::size_t bytes = strides ? at::detail::computeStorageNbytes(sizes, *strides, type.itemsize())
                                    : at::detail::computeStorageNbytesContiguous(sizes, type.itemsize());
  auto record = std::make_unique<DeferredStorage>();
  record->pages_ = LazyPages(bytes);
  void* const pages = record->pages_.data();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       without_memory(record.release(), pages), c10::GetCPUAllocator(),
                                                       /*resizable=*/true);
  if (pages == nullptr) storage->release_data_and_set_meta_custom_data_ptr_error_msg_(absent_text);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet({c10::DispatchKey::CPU, managed_key}), type);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (strides) {
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    impl->generic_set_sizes_contiguous(sizes);
    if (format != at::MemoryFormat::Contiguous) impl->empty_tensor_restride(format);
  }
  return tensor;
}

// A raw pointer would show stale values after an operation is logged.
void DeferredStorage::drop_pages(c10::StorageImpl& storage) {
  if (pages_.data() == nullptr) return;
  storage._mutable_data_ptr_no_checks().release_context();
  storage.set_data_ptr_noswap(without_memory(this, nullptr));
  pages_ = LazyPages();
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(absent_text);
}

at::Tensor DeferredStorage::copy(const at::Tensor& tensor) {
  const Lock lock(mutex());
  DeferredStorage* const record = of(tensor);
  const bool whole = record != nullptr && tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
                     tensor.nbytes() == tensor.storage().nbytes() && !tensor.is_conj() && !tensor.is_neg();
  if (!whole || record->pages_.touched()) return {};
  at::Tensor made = make(tensor.sizes(), tensor.strides(), at::MemoryFormat::Contiguous, tensor.scalar_type());
  DeferredStorage* const other = of(made);
  other->log_ = record->log_;
  if (!other->log_.empty()) other->drop_pages(*made.storage().unsafeGetStorageImpl());
  return made;
}

bool DeferredStorage::log(const c10::OperatorHandle& op, const at::Tensor& self, std::span<const c10::IValue> arguments,
                          std::optional<std::size_t> generator_argument) {
  const Lock lock(mutex());
  const c10::impl::ExcludeDispatchKeyGuard no_key(managed_key);
  DeferredStorage* const record = of(self);
  if (record == nullptr || record->pages_.touched()) return false;
  LoggedOperator entry{op, geometry_of(self), {arguments.begin() + 1, arguments.end()}, {}, 0};
  if (generator_argument) {
    entry.generator_argument = *generator_argument - 1;
    const c10::IValue& named = entry.arguments[entry.generator_argument];
    at::Generator drawn_from = named.isNone() ? at::detail::getDefaultCPUGenerator() : named.toGenerator();
    {
      const std::lock_guard<std::mutex> generator_lock(drawn_from.mutex());
      entry.generator = drawn_from.clone();
    }
    draw(op, self, entry.arguments);
    entry.arguments[entry.generator_argument] = c10::IValue();  // do not keep the user's generator alive
  } else {
    for (c10::IValue& argument : entry.arguments) {
      if (argument.isTensor() && argument.toTensor().defined()) argument = argument.toTensor().detach().clone();
    }
    // Invalid arguments are refused here, as they would be without deferral.
    const std::vector<std::int64_t> ones(static_cast<std::size_t>(self.dim()), 1);
    call(op, at::zeros(ones, self.dtype()), entry.arguments);
  }
  record->drop_pages(*self.storage().unsafeGetStorageImpl());
  record->log_.push_back(std::move(entry));
  if (!self.is_inference()) self.unsafeGetTensorImpl()->bump_version();
  return true;
}

void DeferredStorage::materialize(const at::Tensor& tensor, bool replay) {
  const Lock lock(mutex());
  const c10::impl::ExcludeDispatchKeyGuard no_key(managed_key);
  DeferredStorage* const record = of(tensor);
  if (record == nullptr) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  c10::DataPtr data;
  if (replay && record->pages_.touched()) {
    data = std::move(record->pages_).release();
  } else {
    data = allocate_materialized(storage->nbytes());
    if (replay && !record->log_.empty()) {
      const c10::Storage fresh(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), storage->nbytes(), std::move(data), c10::GetCPUAllocator(), false));
      for (const LoggedOperator& entry : record->log_) {
        std::vector<c10::IValue> arguments = entry.arguments;
        if (entry.generator.defined()) arguments[entry.generator_argument] = entry.generator.clone();
        call(entry.op, tensor_at(fresh, entry.self), arguments);
      }
      data = fresh.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
    }
  }
  storage->*revealed(ThrowFlag()) = false;
  storage->set_data_ptr_noswap(std::move(data));  // deletes the record
}

void DeferredStorage::drop_key(const at::Tensor& tensor) {
  c10::DispatchKeySet& keys = tensor.unsafeGetTensorImpl()->*KeySetOf::member();
  if (!keys.has(managed_key) || of(tensor) != nullptr || managed_storage(tensor) != nullptr) return;
  keys = keys.remove(managed_key);
}

}  // namespace tessera::parallel
