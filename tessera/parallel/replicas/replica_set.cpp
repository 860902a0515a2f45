#include <tessera/parallel/replicas/replica_set.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/replicas/private_buffers.h>
#include <tessera/parallel/replicas/random_stream.h>
#include <tessera/parallel/replicas/replica_gather.h>
#include <tessera/parallel/replicas/replica_modules.h>
#include <tessera/parallel/replicas/replica_teams.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace tessera::parallel {
namespace {

/// The seed of one call, drawn when a replica first needs a random number, so that a call without any draws nothing.
/// The number does not depend on which replica comes first.
class CallKey {
 public:
  CallKey() : source_(thread_generator(c10::Device(c10::kCPU))) {}
  std::uint64_t get() {
    std::call_once(drawn_, [this] {
      auto* const generator = at::check_generator<at::CPUGeneratorImpl>(source_);
      const std::lock_guard lock(generator->mutex_);
      key_ = generator->random64();
    });
    return key_;
  }

 private:
  at::Generator source_;
  std::once_flag drawn_;
  std::uint64_t key_ = 0;
};

/// Refuses a tensor that requires grad and is neither an argument nor a parameter, because its gradient would be lost.
void require_known_leaves(const ReplicaCall::Replica& replica) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& leaf : replica.leaves) known.insert(leaf.tensor.unsafeGetTensorImpl());
  for (const at::Tensor& leaf : leaves_behind(replica.outputs)) {
    if (known.contains(leaf.unsafeGetTensorImpl())) continue;
    std::string shape;
    for (std::int64_t i = 0; i < leaf.dim(); ++i) shape += concat(i > 0 ? ", " : "", leaf.size(i));
    throw InputError(concat("DataParallel: the module uses a tensor [", shape,
                            "] that requires grad and is neither one of its "
                            "parameters nor an argument of the call, so its gradient would be lost. Register it "
                            "(register_parameter) or pass it as an argument"));
  }
}

}  // namespace

struct ReplicaSet::Impl {
  Impl(const std::shared_ptr<torch::nn::Module>& module, const DataParallelOptions& options)
      : modules(module, replica_devices(*module, options), options),
        output_device(options.output_device.value_or(modules.device(0))) {
    if (modules.size() == 1) return;
    std::vector<c10::Device> devices;
    for (int r = 0; r < modules.size(); ++r) devices.push_back(modules.device(r));
    const int threads = options.threads_per_replica > 0 ? options.threads_per_replica
                                                        : std::max(1, at::get_num_threads() / modules.size());
    teams = std::make_shared<ReplicaTeams>(std::move(devices), threads);
  }

  std::vector<at::Tensor> run(const pieces::Collected& inputs, const Body& body);

  /// The part of replica `number`; appends its leaves that need gradients.
  pieces::Part part(const pieces::Collected& inputs, const ReplicaCall& call, int number, std::int64_t first,
                    std::vector<ReplicaModules::Leaf>& leaves) const;

  ReplicaModules modules;
  c10::Device output_device;
  std::shared_ptr<ReplicaTeams> teams;  // null for one replica
  bool leaves_checked = false;
};

pieces::Part ReplicaSet::Impl::part(const pieces::Collected& inputs, const ReplicaCall& call, int number,
                                    std::int64_t first, std::vector<ReplicaModules::Leaf>& leaves) const {
  pieces::Part part;
  part.first = first;
  part.count = call.rows[static_cast<std::size_t>(number)];
  part.device = modules.device(number);
  std::size_t variable = 0;
  for (const auto& [tensor, whole] : inputs.inputs()) {
    const bool wanted = variable < call.variables.size() && tensor.is_same(call.variables[variable].tensor);
    at::Tensor mine = tensor;
    if (tensor.defined()) {
      if (wanted) mine = mine.detach();
      if (!whole && call.rows.size() > 1) mine = mine.narrow(0, first, part.count);
      mine = mine.to(modules.device(number));
    }
    if (wanted) {
      // A view of the caller's tensor would not be a leaf.
      mine = mine.detach().requires_grad_();
      leaves.push_back({mine, variable++});
    }
    part.tensors.push_back(mine);
  }
  return part;
}

std::vector<at::Tensor> ReplicaSet::Impl::run(const pieces::Collected& inputs, const Body& body) {
  at::RecordFunction span(at::RecordScope::FUNCTION);  // appears in profiles under PyTorch's name
  if (span.isActive()) span.before("DataParallel.forward");
  if (!teams) {
    pieces::Part all;
    all.count = inputs.rows().value_or(0);
    all.device = modules.device(0);
    for (const auto& input : inputs.inputs()) all.tensors.push_back(input.tensor);
    return body(0, modules.module(0), all);
  }
  auto call = c10::make_intrusive<ReplicaCall>();
  call->teams = teams;
  call->rows = inputs.rows() ? chunk_rows(*inputs.rows(), modules.size()) : std::vector<std::int64_t>{0};
  call->output_device = output_device;
  const int used = static_cast<int>(call->rows.size());
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t rows : call->rows) begins.push_back(begins.back() + rows);
  const bool scattered = inputs.rows().has_value();
  call->name = [begins, scattered, all = modules.size()](int r) {
    const auto i = static_cast<std::size_t>(r);
    return concat(
        "replica ", r, " of ", all,
        !scattered || begins[i] == begins[i + 1] ? "" : concat(" (rows ", begins[i], " to ", begins[i + 1] - 1, ")"));
  };

  const bool records = at::GradMode::is_enabled();
  const std::vector<at::Tensor> trained = modules.trained();
  if (records) {
    for (const auto& [tensor, whole] : inputs.inputs())
      if (tensor.defined() && tensor.requires_grad()) call->variables.push_back({tensor, !whole});
  }
  const std::size_t arguments = call->variables.size();
  if (records)
    for (const at::Tensor& parameter : trained) call->variables.push_back({parameter, false});
  modules.synchronize(!call->variables.empty());
  if (modules.shared()) call->buffers = modules.module(0).buffers();

  std::vector<pieces::Part> parts;
  call->replicas.resize(static_cast<std::size_t>(used));
  for (int r = 0; r < used; ++r) {
    auto& leaves = call->replicas[static_cast<std::size_t>(r)].leaves;
    parts.push_back(part(inputs, *call, r, begins[static_cast<std::size_t>(r)], leaves));
    if (!records) continue;
    for (auto& [tensor, index] : modules.leaves(r, trained)) leaves.push_back({tensor, arguments + index});
  }

  CallKey key;
  {
    const PrivateBuffers buffers(call->buffers);
    std::vector<std::shared_ptr<PrivateBuffers::Copies>> copies;
    for (int r = 0; r < used; ++r) copies.push_back(buffers.copies());
    teams->run(
        used,
        [&](int r) {
          const auto i = static_cast<std::size_t>(r);
          at::Generator generator = teams->generator(r);
          const RandomStream stream(generator, [&] {
            const std::uint64_t seed = stream_seed(key.get(), i);
            const std::lock_guard lock(generator.mutex());
            generator.set_current_seed(seed);
          });
          const PrivateBuffers::Use use(*copies[i]);
          call->replicas[i].outputs = body(r, modules.module(r), parts[i]);
        },
        call->name);
    PrivateBuffers::commit(*copies.front());
  }
  if (!call->variables.empty() && !leaves_checked) {
    require_known_leaves(call->replicas.front());
    leaves_checked = true;
  }
  return gather(call);
}

ReplicaSet::ReplicaSet(std::shared_ptr<torch::nn::Module> module, DataParallelOptions options) {
  if (!module) throw InputError("DataParallel: the module is nullptr");
  impl_ = std::make_shared<Impl>(module, options);
}
ReplicaSet::~ReplicaSet() = default;
ReplicaSet::ReplicaSet(ReplicaSet&&) noexcept = default;

std::vector<at::Tensor> ReplicaSet::run(const pieces::Collected& inputs, const Body& body) {
  return impl_->run(inputs, body);
}
int ReplicaSet::size() const { return impl_->modules.size(); }
int ReplicaSet::threads_per_replica() const {
  return impl_->teams ? impl_->teams->threads_per_replica() : at::get_num_threads();
}
void ReplicaSet::refresh() { impl_->modules.refresh(); }

std::vector<std::int64_t> chunk_rows(std::int64_t rows, int parts) {
  TESSERA_CHECK(rows >= 0 && parts > 0, rows, " rows in ", parts, " parts");
  const std::int64_t each = (rows + parts - 1) / parts;
  std::vector<std::int64_t> result;
  for (std::int64_t left = rows; left > 0; left -= result.back()) result.push_back(std::min(each, left));
  return result.empty() ? std::vector<std::int64_t>{0} : result;
}

at::Tensor mean_over_rows(const at::Tensor& per_replica, std::int64_t rows, int replicas) {
  if (replicas == 1 && per_replica.dim() == 0) return per_replica;
  const std::vector<std::int64_t> counts = chunk_rows(rows, replicas);
  if (per_replica.dim() != 1 || per_replica.size(0) != std::ssize(counts))
    throw Error(
        concat("mean_over_rows: ", rows, " rows on ", replicas, " replicas give ", counts.size(),
               " values, one per replica that ran, but there are ",
               per_replica.dim() == 1 ? concat(per_replica.size(0)) : concat("[", per_replica.dim(), " dimensions]")));
  const at::Tensor weights = at::tensor(counts, at::kDouble).div_(static_cast<double>(std::max<std::int64_t>(rows, 1)));
  return (per_replica * weights.to(per_replica.options().requires_grad(false))).sum();
}

}  // namespace tessera::parallel
