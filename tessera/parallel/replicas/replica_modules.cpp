#include <tessera/parallel/replicas/replica_modules.h>

#include <tessera/base/error.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/dispatch/managed.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace tessera::parallel {
namespace {

using Named = torch::OrderedDict<std::string, at::Tensor>;

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t size : tensor.sizes()) text += concat(text.size() > 1 ? ", " : "", size);
  return concat(text, "] ", c10::toString(tensor.scalar_type()));
}

void require_same(const Named& first, const Named& other, const char* what) {
  for (const auto& item : first) {
    const at::Tensor* const found = other.find(item.key());
    const std::string name = concat(what, " '", item.key(), "'");
    if (found == nullptr) throw InputError(concat("DataParallel: a replica lacks ", name, " of the module"));
    if (item->sizes() != found->sizes() || item->scalar_type() != found->scalar_type())
      throw InputError(concat("DataParallel: ", name, " is ", shape_text(*item), " in the module and ",
                              shape_text(*found), " in a replica; `make` must create the same architecture"));
  }
  if (first.size() != other.size())
    throw InputError(
        concat("DataParallel: the module has ", first.size(), " ", what, "s, but a replica has ", other.size()));
}

std::shared_ptr<torch::nn::Module> clone_to(const torch::nn::Module& module, c10::Device device) {
  try {
    return module.clone(device);
  } catch (const c10::Error& error) {
    throw InputError(concat("DataParallel: a replica on ", device.str(),
                            " needs a module of its own, and this one cannot "
                            "be cloned (",
                            error.what_without_backtrace(),
                            "). Set `make`, a function that creates another "
                            "module like it, or derive the module from torch::nn::Cloneable"));
  }
}

/// Built without memory or random numbers, since the values do not matter.
std::shared_ptr<torch::nn::Module> make_empty(const DataParallelOptions& options) {
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
  const at::Tensor state = generator.get_state();
  std::shared_ptr<torch::nn::Module> made;
  {
    const DeferredScope scope;
    made = options.make();
  }
  generator.set_state(state);
  if (!made) throw InputError("DataParallel: `make` returned no module");
  materialize(made->buffers());
  return made;
}

/// Visits sub-modules in registration order, parents first, because train() also sets the descendants.
void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  const auto sources = from.modules(/*include_self=*/false);
  const auto targets = to.modules(/*include_self=*/false);
  if (to.is_training() != from.is_training()) to.train(from.is_training());
  for (std::size_t i = 0; i < std::min(sources.size(), targets.size()); ++i)
    if (targets[i]->is_training() != sources[i]->is_training()) targets[i]->train(sources[i]->is_training());
}

}  // namespace

std::vector<c10::Device> replica_devices(const torch::nn::Module& module, const DataParallelOptions& options) {
  if (options.replicas < 0 || options.threads_per_replica < 0)
    throw InputError(concat("DataParallel: replicas is ", options.replicas, " and threads_per_replica ",
                            options.threads_per_replica, "; both must be >= 0 (0: choose automatically)"));
  const auto tensors = module.parameters().empty() ? module.buffers() : module.parameters();
  c10::Device home = tensors.empty() ? c10::Device(c10::kCPU) : tensors.front().device();
  std::vector<c10::Device> devices = options.devices;
  if (devices.empty() && home.is_cpu()) {
    const int chosen = options.replicas > 0
                           ? options.replicas
                           : std::max(1, at::get_num_threads() / std::max(1, options.threads_per_replica));
    devices.assign(static_cast<std::size_t>(chosen), home);
  } else if (devices.empty()) {
    const auto count =
        static_cast<c10::DeviceIndex>(options.replicas > 0 ? options.replicas : static_cast<int>(at::getNumGPUs()));
    for (c10::DeviceIndex i = 0; i < count; ++i)
      devices.emplace_back(home.type(), static_cast<c10::DeviceIndex>(home.index() + i));
  }
  if (options.replicas > 0 && devices.size() != static_cast<std::size_t>(options.replicas))
    throw InputError(
        concat("DataParallel: replicas is ", options.replicas, " but there are ", devices.size(), " devices"));
  if (devices.size() > 1)
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (!devices[i].is_cpu() && std::count(devices.begin(), devices.end(), devices[i]) > 1)
        throw InputError(concat("DataParallel: device ", devices[i].str(), " appears twice in the list of devices"));
  for (const auto& item : module.named_parameters())
    if (item->device() != devices.front())
      throw InputError(concat("DataParallel: parameter '", item.key(), "' is on ", item->device().str(),
                              "; the module must be on the first replica's device, ", devices.front().str()));
  return devices;
}

ReplicaModules::ReplicaModules(std::shared_ptr<torch::nn::Module> first, std::vector<c10::Device> devices,
                               const DataParallelOptions& options)
    : first_(std::move(first)), devices_(std::move(devices)) {
  materialize(first_->parameters());
  const bool one_device = std::count(devices_.begin(), devices_.end(), devices_.front()) == std::ssize(devices_);
  if (size() == 1 || (one_device && !options.make)) return;
  const Named parameters = first_->named_parameters(), buffers = first_->named_buffers();
  for (int r = 1; r < size(); ++r) {
    own_.push_back(options.make ? make_empty(options) : clone_to(*first_, device(r)));
    require_same(parameters, own_.back()->named_parameters(), "parameter");
    require_same(buffers, own_.back()->named_buffers(), "buffer");
  }
}

std::vector<at::Tensor> ReplicaModules::trained() const {
  std::vector<at::Tensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : first_->parameters()) {
    if (is_managed(parameter))
      throw Error(
          "DataParallel: the module's parameters are sharded (tessera::Sharded), so replicas in one process cannot "
          "share "
          "them; use more ranks instead of replicas, or strategy \"ddp\"");
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) result.push_back(parameter);
  }
  return result;
}

std::vector<ReplicaModules::Leaf> ReplicaModules::leaves(int replica, const std::vector<at::Tensor>& trained) const {
  std::vector<Leaf> result;
  if (shared() || replica == 0) {
    for (std::size_t i = 0; i < trained.size(); ++i) result.push_back({trained[i], i});
    return result;
  }
  std::unordered_map<const c10::TensorImpl*, std::size_t> index;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < trained.size(); ++i) index[trained[i].unsafeGetTensorImpl()] = i;
  const Named own = module(replica).named_parameters();
  for (const auto& item : first_->named_parameters()) {
    const auto found = index.find(item->unsafeGetTensorImpl());
    if (found == index.end()) continue;
    const at::Tensor& tensor = own[item.key()];
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back({tensor, found->second});
  }
  return result;
}

std::vector<std::uint32_t> ReplicaModules::versions() const {
  std::vector<std::uint32_t> result;
  for (const at::Tensor& parameter : first_->parameters())
    result.push_back(parameter.is_inference() ? 0 : static_cast<std::uint32_t>(parameter._version()));
  return result;
}

void ReplicaModules::synchronize(bool records_gradients) {
  if (shared()) return;
  const at::NoGradGuard no_grad;
  const std::vector<std::uint32_t> now = versions();
  const bool copy = records_gradients || stale_ || now != copied_versions_;
  const Named parameters = first_->named_parameters(), buffers = first_->named_buffers();
  for (int r = 1; r < size(); ++r) {
    copy_modes(*first_, module(r));
    const Named own = module(r).named_parameters(), own_buffers = module(r).named_buffers();
    for (const auto& item : parameters) {
      at::Tensor target = own[item.key()];
      if (item->device() == device(r)) {  // the same memory
        if (is_deferred(target) || target.data_ptr() != item->data_ptr() || target.sizes() != item->sizes() ||
            target.scalar_type() != item->scalar_type())
          target.set_data(item->detach());
      } else if (target.device() != device(r) || target.scalar_type() != item->scalar_type()) {
        target.set_data(item->detach().to(device(r)));
      } else if (copy) {
        target.copy_(*item, /*non_blocking=*/true);
      }
      if (target.requires_grad() != item->requires_grad()) target.set_requires_grad(item->requires_grad());
    }
    for (const auto& item : buffers) {
      at::Tensor target = own_buffers[item.key()];
      if (target.device() != device(r) || target.scalar_type() != item->scalar_type() ||
          target.sizes() != item->sizes())
        target.set_data(item->detach().to(device(r), item->scalar_type(), /*non_blocking=*/false, /*copy=*/true));
      else
        target.copy_(*item, /*non_blocking=*/true);
    }
  }
  stale_ = records_gradients;  // an optimizer may write without changing the version counters
  copied_versions_ = now;
}

}  // namespace tessera::parallel
