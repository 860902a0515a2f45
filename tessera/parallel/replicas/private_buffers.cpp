#include <tessera/parallel/replicas/private_buffers.h>

#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/dispatch/operator_facts.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::parallel {

/// The buffers that one replica wrote, keyed by the buffer's storage, since views share it.
struct PrivateBuffers::Copies {
  struct Copy {
    at::Tensor buffer;                                     ///< keeps the storage alive, and so the map's key valid
    c10::Storage memory;                                   ///< the same size
    std::map<const c10::TensorImpl*, at::Tensor> tensors;  ///< one tensor per buffer, so that version counters work
  };
  std::map<const c10::StorageImpl*, Copy> by_storage;
  std::vector<at::Tensor> buffers;
};

namespace {

constexpr c10::DispatchKey buffer_key = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local PrivateBuffers::Copies* current = nullptr;

// key_set_ is protected; only a derived class may form a pointer to it.
struct KeySetOf : c10::TensorImpl {
  static c10::DispatchKeySet c10::TensorImpl::* member() { return &KeySetOf::key_set_; }
};

void set_key(const at::Tensor& tensor, bool on) {
  c10::DispatchKeySet& keys = tensor.unsafeGetTensorImpl()->*KeySetOf::member();
  keys = on ? keys.add(buffer_key) : keys.remove(buffer_key);
}

bool has_key(const at::Tensor& tensor) { return tensor.defined() && tensor.key_set().has(buffer_key); }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

at::Tensor view_like(const c10::Storage& memory, const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard nested(buffer_key);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return view;
}

PrivateBuffers::Copies::Copy& copy_of(PrivateBuffers::Copies& copies, const at::Tensor& tensor) {
  const auto found = copies.by_storage.find(storage_of(tensor));
  if (found != copies.by_storage.end()) return found->second;
  const c10::Storage& from = tensor.storage();
  const c10::impl::ExcludeDispatchKeyGuard nested(buffer_key);
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(from.nbytes())}, at::kByte);
  std::copy_n(static_cast<const char*>(from.data()), from.nbytes(), static_cast<char*>(bytes.mutable_data_ptr()));
  return copies.by_storage.emplace(storage_of(tensor), PrivateBuffers::Copies::Copy{tensor, bytes.storage(), {}})
      .first->second;
}

/// The current replica's substitute for `tensor`.
at::Tensor substitute(const at::Tensor& tensor, bool writes) {
  if (!has_key(tensor)) return tensor;
  PrivateBuffers::Copies& copies = *current;
  if (!writes && !copies.by_storage.contains(storage_of(tensor))) return tensor;
  auto& copy = copy_of(copies, tensor);
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const bool buffer =
      std::ranges::any_of(copies.buffers, [&](const at::Tensor& known) { return known.unsafeGetTensorImpl() == impl; });
  if (!buffer) return view_like(copy.memory, tensor);
  at::Tensor& known = copy.tensors[impl];
  if (!known.defined()) known = view_like(copy.memory, tensor);
  return known;
}

/// Norms with running statistics write them in training; their schemas do not declare it.
bool updates_statistics(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> values) {
  const std::string_view name = op.operator_name().name;
  if (name.find("batch_norm") == std::string_view::npos && name.find("instance_norm") == std::string_view::npos)
    return false;
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i].name();
    if (argument == "training" || argument == "train" || argument == "use_input_stats")
      return !values[i].isBool() || values[i].toBool();
  }
  return true;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (current != nullptr) {
    const std::size_t count = op.schema().arguments().size(), first = stack->size() - count;
    const auto values = at::ArrayRef<c10::IValue>(*stack).slice(first, count);
    const std::uint64_t writes = detail::known_facts(op).writes;
    const bool statistics = updates_statistics(op, values);
    for (std::size_t i = 0; i < count; ++i) {
      c10::IValue& value = (*stack)[first + i];
      const bool written = statistics || (i < 64 && (writes >> i & 1) != 0);
      if (value.isTensor()) {
        value = substitute(value.toTensor(), written);
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors = value.toTensorVector();
        for (at::Tensor& tensor : tensors) tensor = substitute(tensor, written);
        value = std::move(tensors);
      } else if (value.isOptionalTensorList()) {
        auto tensors = value.toOptionalTensorVector();
        for (std::optional<at::Tensor>& tensor : tensors)
          if (tensor) tensor = substitute(*tensor, written);
        value = c10::List<std::optional<at::Tensor>>(at::ArrayRef<std::optional<at::Tensor>>(tensors));
      }
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, buffer_key), stack);
}

/// Registered once and never removed: saved tensors of a graph may carry the key for longer than any scope.
void register_private_key() {
  static const c10::RegistrationHandleRAII* const registration =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
          buffer_key, c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "tessera: private buffers"));
  (void)registration;
}

}  // namespace

PrivateBuffers::PrivateBuffers(const std::vector<at::Tensor>& buffers) {
  for (const at::Tensor& buffer : buffers)
    if (buffer.defined() && buffer.device().is_cpu() && buffer.layout() == c10::Layout::Strided &&
        !buffer.requires_grad() && !is_managed(buffer))
      buffers_.push_back(buffer);
  if (buffers_.empty()) return;
  register_private_key();
  for (const at::Tensor& buffer : buffers_) set_key(buffer, true);
}

PrivateBuffers::~PrivateBuffers() {
  for (const at::Tensor& buffer : buffers_) set_key(buffer, false);
}

std::shared_ptr<PrivateBuffers::Copies> PrivateBuffers::copies() const {
  auto copies = std::make_shared<Copies>();
  copies->buffers = buffers_;
  return copies;
}

void PrivateBuffers::commit(const Copies& copies) {
  const c10::impl::ExcludeDispatchKeyGuard nested(buffer_key);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : copies.buffers) {
    const auto found = copies.by_storage.find(storage_of(buffer));
    if (found != copies.by_storage.end()) at::Tensor(buffer).copy_(view_like(found->second.memory, buffer));
  }
}

PrivateBuffers::Use::Use(Copies& copies) : before_(std::exchange(current, &copies)) {}
PrivateBuffers::Use::~Use() { current = before_; }

}  // namespace tessera::parallel
