#include <tessera/parallel/dispatch/managed.h>

#include <tessera/base/error.h>
#include <tessera/nn/parameter_semantics.h>
#include <tessera/parallel/dispatch/managed_memory.h>

#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace tessera::parallel {
namespace {

/// StorageImpl can be made to throw when its data is read, but this cannot be undone: the flag is private and has no
/// unsetter. An explicit instantiation may name a private member, which gives access to the flag.
bool& throws_when_read(c10::StorageImpl& storage);
template <bool c10::StorageImpl::* flag>
struct Reach {
  friend bool& throws_when_read(c10::StorageImpl& storage) { return storage.*flag; }
};
template struct Reach<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

/// Points `memory` at `data` (nullptr: absent). set_data_ptr_noswap() checks the flag, so the flag is set first.
void point(c10::StorageImpl& memory, void* data, bool absent) {
  throws_when_read(memory) = absent;
  memory.set_data_ptr_noswap(c10::DataPtr(data, memory.device()));
}

/// set_data() also replaces the backend metadata of a parameter that is cut over ranks (nn/parameter_semantics.h).
void carry_cut(const at::Tensor& parameter, const at::Tensor& next) {
  if (auto cut = parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr())
    next.unsafeGetTensorImpl()->set_backend_meta(std::move(cut));
}

class Mark final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    TESSERA_CHECK(bytes == 0, "the memory of a managed parameter cannot be resized");
    return {};
  }
  void copy_data(void*, const void*, std::size_t) const override {
    throw Error("the memory of a managed parameter cannot be copied as a storage; clone the tensor");
  }
  bool is_simple_data_ptr(const c10::DataPtr&) const override { return false; }  // must never become copy-on-write
};

}  // namespace

namespace detail {

c10::Allocator* memory_mark() {
  static Mark mark;
  return &mark;
}

Memory::Memory(ManagedStorage& owner_, Materializer& materializer_, std::size_t unit_, std::size_t nbytes,
               c10::Device device, std::string absent_text)
    : c10::StorageImpl(use_byte_size_t(), static_cast<std::int64_t>(nbytes), c10::DataPtr(nullptr, device),
                       memory_mark(), /*resizable=*/false),
      owner(&owner_),
      materializer(&materializer_),
      unit(unit_) {
  release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(absent_text));
}

}  // namespace detail

struct ManagedStorage::Impl {
  c10::intrusive_ptr<detail::Memory> memory;
  std::int64_t numel;
  at::ScalarType dtype;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> adopted;  ///< some may have been given different memory
};

ManagedStorage::ManagedStorage(Materializer& materializer, std::size_t unit, std::int64_t numel, at::ScalarType dtype,
                               c10::Device device, std::string absent_text) {
  TESSERA_CHECK(numel >= 0, "a managed storage of ", numel, " elements");
  detail::register_key();
  impl_ = std::make_unique<Impl>();
  impl_->numel = numel;
  impl_->dtype = dtype;
  impl_->memory = c10::make_intrusive<detail::Memory>(*this, materializer, unit,
                                                      static_cast<std::size_t>(numel) * c10::elementSize(dtype), device,
                                                      std::move(absent_text));
}

ManagedStorage::~ManagedStorage() {
  detail::Memory& memory = *impl_->memory;
  point(memory, nullptr, /*absent=*/true);
  memory.owner = nullptr;
  memory.get_extra_meta().custom_data_ptr_error_msg_ =
      "this tensor aliases parameters of a module that is no longer sharded (their sharding object was destroyed)";
}

void ManagedStorage::adopt(const at::Tensor& parameter, std::int64_t offset, at::IntArrayRef sizes,
                           at::IntArrayRef strides) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  TESSERA_CHECK(parameter.defined() && parameter.is_leaf(), "only a leaf can become a managed parameter");
  TESSERA_CHECK(sizes.size() == strides.size(), sizes.size(), " sizes and ", strides.size(), " strides");
  TESSERA_CHECK(offset >= 0 && offset + count <= impl_->numel, "elements [", offset, ", ", offset + count,
                ") of a storage of ", impl_->numel);
  TESSERA_CHECK(parameter.device() == impl_->memory->device(), "a parameter on ", parameter.device().str(),
                " and memory on ", impl_->memory->device().str());

  // A tensor on the storage with the key. set_data() copies its metadata, including the keys, into the parameter, and
  // replaces an AccumulateGrad of a different dtype; one of a different shape is replaced below.
  const c10::InferenceMode normal(false);
  const auto key = c10::computeDispatchKey(impl_->dtype, c10::Layout::Strided, impl_->memory->device());
  c10::DispatchKeySet keys = c10::DispatchKeySet(key).add(managed_key);
  if (parameter.key_set().has(nn::cut_key)) keys = keys.add(nn::cut_key);  // it is already a part (tensor parallelism)
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(impl_->memory)), keys, c10::scalarTypeToTypeMeta(impl_->dtype));
  carry_cut(parameter, view);
  view.unsafeGetTensorImpl()->set_storage_offset(offset);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  const bool reshaped = parameter.sizes() != sizes;
  parameter.set_data(view);
  if (reshaped) torch::autograd::impl::set_grad_accumulator(parameter, {});

  std::erase_if(impl_->adopted, [&](const auto& weak) {
    return weak.expired() || weak._unsafe_get_target() == parameter.unsafeGetTensorImpl();
  });
  impl_->adopted.emplace_back(parameter.getIntrusivePtr());
}

bool ManagedStorage::owns(const at::Tensor& parameter) const {
  return is_managed(parameter) &&
         parameter.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == impl_->memory.get() &&
         parameter.scalar_type() == impl_->dtype;
}

void ManagedStorage::abandon(const at::Tensor& parameter, const at::Tensor& value) {
  TESSERA_CHECK(managed_storage(parameter) != nullptr, "the parameter is not managed");
  TESSERA_CHECK(value.defined() && !is_managed(value) && value.layout() == c10::Layout::Strided,
                "the value of a released parameter must be in ordinary dense memory");
  TESSERA_CHECK(value.sizes() == parameter.sizes(), "the value's sizes differ from the parameter's");
  const c10::InferenceMode normal(false);
  const bool cut = parameter.key_set().has(nn::cut_key);
  at::Tensor given = value.detach();
  if (cut) {
    const at::Tensor dense = given.contiguous();
    given = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(dense.storage()), dense.key_set().add(nn::cut_key),
                                                     dense.dtype());
    given.unsafeGetTensorImpl()->set_storage_offset(dense.storage_offset());
    given.unsafeGetTensorImpl()->set_sizes_and_strides(dense.sizes(), dense.strides());
  }
  carry_cut(parameter, given);
  parameter.set_data(given);
}

void ManagedStorage::attach(at::Tensor buffer) {
  TESSERA_CHECK(!buffer_.defined(), "the memory is already present");
  TESSERA_CHECK(buffer.defined() && buffer.is_contiguous() && !is_managed(buffer),
                "the buffer must be plain and contiguous");
  TESSERA_CHECK(buffer.numel() == impl_->numel && buffer.scalar_type() == impl_->dtype &&
                    buffer.device() == impl_->memory->device(),
                "a buffer of ", buffer.numel(), " ", c10::toString(buffer.scalar_type()), " on ", buffer.device().str(),
                " for a storage of ", impl_->numel, " ", c10::toString(impl_->dtype), " on ",
                impl_->memory->device().str());
  point(*impl_->memory, buffer.mutable_data_ptr(), /*absent=*/false);
  buffer_ = std::move(buffer);
}

at::Tensor ManagedStorage::detach() {
  TESSERA_CHECK(buffer_.defined(), "the memory is already absent");
  point(*impl_->memory, nullptr, /*absent=*/true);
  return std::exchange(buffer_, at::Tensor());
}

void ManagedStorage::cast_inputs(bool cast) { impl_->memory->cast_inputs = cast; }

std::size_t ManagedStorage::foreign_uses() const {
  std::size_t own = 1;
  for (const auto& weak : impl_->adopted) {
    const auto tensor = weak.lock();
    own += tensor && tensor->unsafe_storage().unsafeGetStorageImpl() == impl_->memory.get() ? 1 : 0;
  }
  return impl_->memory.use_count() - own;
}

std::size_t ManagedStorage::unit() const { return impl_->memory->unit; }
Materializer& ManagedStorage::materializer() const { return *impl_->memory->materializer; }

std::size_t stored_views(const at::Tensor& parameter, std::span<const at::Tensor> parameters) {
  const auto storage_of = [](const at::Tensor& t) {
    return t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  };
  std::vector<const c10::TensorImpl*> known;
  for (const at::Tensor& p : parameters)
    if (p.defined() && storage_of(p) == storage_of(parameter)) known.push_back(p.unsafeGetTensorImpl());
  known.push_back(parameter.unsafeGetTensorImpl());
  std::ranges::sort(known);
  const std::size_t own = static_cast<std::size_t>(std::ranges::unique(known).begin() - known.begin());
  return parameter.unsafeGetTensorImpl()->unsafe_storage().use_count() - own;
}

ManagedStorage* managed_storage(const at::Tensor& tensor) {
  if (!is_managed(tensor)) return nullptr;
  const detail::Memory* memory = detail::memory_of(*tensor.unsafeGetTensorImpl());
  return memory != nullptr ? memory->owner : nullptr;
}

}  // namespace tessera::parallel
