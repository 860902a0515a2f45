#include <tessera/parallel/tensor_parallel.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/tensor/tensor_shard.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

namespace tessera {

struct TensorParallel::Impl {
  TensorParallelOptions options;
  std::vector<TensorParallelParameter> parameters;
  struct Touched {
    at::Tensor parameter;
    c10::intrusive_ptr<parallel::TensorShard> cut;  ///< null: whole on every rank
    unsigned hook;                                  ///< checks its gradient or sums it
  };
  std::vector<Touched> touched;
};

namespace {

struct Planned {
  at::Tensor parameter;
  c10::intrusive_ptr<parallel::TensorShard> cut;
};

/// Also marks the gradient of a part as a part, until an engine takes it over.
struct MarkGradient final : torch::autograd::PostAccumulateGradHook {
  explicit MarkGradient(c10::intrusive_ptr<parallel::TensorShard> cut_) : cut(std::move(cut_)) {}
  void operator()(const at::Tensor& parameter) override {
    if (parameter.grad().defined() && parallel::cut_of(parameter) == cut.get() && !parallel::is_managed(parameter))
      parallel::mark_cut(parameter.grad(), cut);
  }
  c10::intrusive_ptr<parallel::TensorShard> cut;
};

/// Also registers on frozen parameters, since they may be trained later.
unsigned add_hook(const at::Tensor& parameter, std::function<at::Tensor(const at::Tensor&)> hook) {
  const bool trained = parameter.requires_grad();
  parameter.requires_grad_(true);
  const unsigned number = parameter.register_hook(std::move(hook));
  parameter.requires_grad_(trained);
  return number;
}

/// Norm, sum and weighted sum of a gradient that may be large or sparse: [3].
at::Tensor marks_of(const at::Tensor& gradient) {
  const at::Tensor flat = (gradient.is_sparse() ? gradient.coalesce().values() : gradient).detach().flatten();
  at::Tensor marks = at::zeros({3}, flat.options().dtype(at::kDouble));
  constexpr std::int64_t step = std::int64_t{1} << 22;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += step) {
    const at::Tensor x = flat.slice(0, begin, begin + step).to(at::kDouble);
    marks += at::stack({x.dot(x), x.sum(), x.dot(at::arange(begin, begin + x.numel(), x.options()).sin())});
  }
  marks[0].sqrt_();
  return marks;
}

/// A parameter that is whole on every rank must have the same gradient on each; otherwise its style is wrong. Compared
/// once, in the first backward with a usable gradient: neither 0 everywhere nor overflowed.
at::Tensor compare_once(const at::Tensor& gradient, const std::string& name, const comm::Group& group, bool& compared) {
  if (std::exchange(compared, true)) return gradient;
  const comm::Tag tag("comparison of gradients");
  const at::Tensor mine = marks_of(gradient);
  at::Tensor most = at::stack({mine, mine.neg()});
  group.all_reduce(most, comm::Reduction::max).wait();
  const double difference = (most[0] + most[1]).max().item<double>(), size = most[0][0].item<double>();
  if (size == 0 || !std::isfinite(size) ||
      !std::isfinite(difference)) {  // the same on all ranks, so all decide the same
    compared = false;
    return gradient;
  }
  const bool narrow = gradient.scalar_type() == at::kBFloat16 || gradient.scalar_type() == at::kHalf;
  if (difference <= (narrow ? 0.1 : 1e-3) * size + 1e-9) return gradient;
  throw InputError(concat("tensor parallelism: '", name, "' is whole on every rank of '", group.name(),
                          "', but its gradients differ between them (by ", difference, " of ", size,
                          "): it is used on activations that are cut. Give it the style sequence_parallel (a norm on a "
                          "part of the tokens) or replicated_with_grad_allreduce (on a part of the heads) in the plan; "
                          "if its activations are whole, the ranks had different data or random numbers (dropout)"));
}

/// Returns the cut that the plan gives each parameter of the module; changes nothing.
std::vector<Planned> make_cuts(const torch::nn::Module& module, const TensorParallelOptions& options) {
  const auto activations = std::make_shared<parallel::TensorShard::Activations>();
  if (options.sequence_parallel) activations->between = parallel::Between::own_tokens;
  if (options.overlap_products) activations->product_parts = 2;
  std::vector<bool> used(options.plan.size(), false);
  std::vector<Planned> planned;
  std::vector<std::string> names;
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    names.push_back(name);
    const auto rule = std::ranges::find_if(
        options.plan, [&](const layout::TensorRule& each) { return layout::matches(each.pattern, name); });
    if (rule == options.plan.end()) continue;
    used[static_cast<std::size_t>(rule - options.plan.begin())] = true;
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;  // a tied parameter; its first name counts
    if (parallel::is_managed(item.value()) && !parallel::is_deferred(item.value()))
      throw InputError(concat("tensor parallelism: '", name,
                              "' is already sharded: cut the whole module first, then shard its parts"));
    if (parallel::cut_of(item.value()) != nullptr)
      throw InputError(concat("tensor parallelism: '", name, "' is already cut"));
    if (item.value().is_leaf() && parallel::has_gradient_hook(item.value()))
      throw InputError(concat("tensor parallelism: '", name,
                              "' already belongs to a data-parallel engine (Sharded, Ddp): cut the module first, then "
                              "give it to the engine"));
    if (item.value().grad().defined())
      throw InputError(
          concat("tensor parallelism: '", name,
                 "' already has a gradient of the whole parameter: cut the module before its first backward, or "
                 "call zero_grad()"));
    layout::TensorRule effective = *rule;
    // Row-parallel layers return this rank's tokens only, so their biases are added to those only.
    if (options.sequence_parallel && item.value().dim() == 1 &&
        (effective.style == TensorStyle::rowwise || effective.style == TensorStyle::rowwise_split_input))
      effective.style = TensorStyle::sequence_parallel;
    if (effective.style == TensorStyle::sequence_parallel && !options.sequence_parallel) continue;
    auto cut = c10::make_intrusive<parallel::TensorShard>(name, std::move(effective), item.value().sizes(),
                                                          options.group, activations);
    if (cut->divided() || cut->sums_gradient()) planned.push_back({item.value(), std::move(cut)});
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) {
      const std::string& pattern = options.plan[i].pattern;
      const auto near = nearest(pattern, names);
      throw InputError(concat("tensor parallelism: no parameter matches '", pattern, "'",
                              near ? concat("; did you mean '", *near, "'?") : std::string()));
    }
  return planned;
}

/// One line per parameter, with everything that ranks must agree on.
std::string digest(const torch::nn::Module& module, const std::vector<Planned>& planned,
                   const TensorParallelOptions& options) {
  std::string text = options.sequence_parallel ? "sequence_parallel\n" : "no sequence_parallel\n";
  for (const Planned& each : planned)
    text += concat(each.cut->name(), " ", c10::str(at::IntArrayRef(each.cut->part().whole)), " ", each.cut->rule_text(),
                   "\n");
  for (const auto& item : module.named_parameters())
    text += concat(item.key(), " ", c10::str(item.value().sizes()), " ", c10::toString(item.value().scalar_type()),
                   item.value().requires_grad() ? "" : " frozen", "\n");
  return text;
}

/// Each rank keeps its part of its own values, so all ranks must have the same values.
void check_values(const comm::Group& group, const torch::nn::Module& module) {
  std::vector<parallel::NamedTensor> values;
  for (const auto& item : module.named_parameters())
    if (!parallel::is_managed(item.value())) values.push_back({item.key(), item.value().detach()});
  try {
    parallel::require_same_bits(group, values, "parameter");
  } catch (const parallel::ReplicasDiffer& error) {
    throw InputError(
        concat("tensor parallelism: each rank keeps its part of its own values, but these are not the "
               "same: ",
               error.what(),
               ". Use the same seed on every rank (torch::manual_seed) before constructing the module, or "
               "load the same file"));
  }
}

void check_agreement(const comm::Group& group, const std::string& own) {
  const std::vector<std::string> all = comm::all_gather_text(group, own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto [a, b] = std::ranges::mismatch(all[0], all[rank]);
    const auto line = [](const std::string& text, std::size_t place) {
      const std::size_t begin = place == 0 ? 0 : text.rfind('\n', place - 1) + 1;
      return text.substr(begin, text.find('\n', begin) - begin);
    };
    throw InputError(concat("tensor parallelism: ranks of ", group.name(),
                            " have different modules or plans: rank 0 has '",
                            line(all[0], static_cast<std::size_t>(a - all[0].begin())), "', rank ", rank, " '",
                            line(all[rank], static_cast<std::size_t>(b - all[rank].begin())), "'"));
  }
}

}  // namespace

TensorParallel::TensorParallel(torch::nn::Module& module, TensorParallelOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (!options.group) options.group = world().group();
  impl_->options = std::move(options);
  const comm::Group& group = impl_->options.group;
  std::vector<Planned> planned;
  comm::run_on_all_ranks(group, [&] { planned = make_cuts(module, impl_->options); });
  check_agreement(group, digest(module, planned, impl_->options));
  if (impl_->options.check_values) check_values(group, module);
  std::set<const void*> seen;
  for (Planned& each : planned) {
    const c10::TensorImpl* const impl = each.parameter.unsafeGetTensorImpl();
    seen.insert(impl);
    if (each.cut->divided() && parallel::is_deferred(each.parameter)) {
      const at::NoGradGuard no_grad;
      if (impl_->options.fill)
        impl_->options.fill(each.cut->name(), each.parameter);
      else
        parallel::materialize({each.parameter});
    }
    parallel::apply_cut(each.parameter, each.cut);
    const unsigned hook = add_hook(each.parameter, [cut = each.cut, impl](const at::Tensor& gradient) {
      if (cut->divided() && impl->get_backend_meta_intrusive_ptr().get() != cut.get())
        throw InputError(concat("tensor parallelism: ", cut->described(),
                                " was replaced after it was cut (torch::load(), set_data()), so it is unknown whether "
                                "it is still a part:  restore() the module first, change it, and cut it again"));
      // A gradient that a linear map defers (nn/weight_gradients.h) is summed when it is formed.
      return gradient.defined() && cut->sums_gradient() ? cut->sum_gradient(gradient) : gradient;
    });
    impl_->touched.push_back({each.parameter, each.cut, hook});
    if (each.cut->divided()) {
      torch::autograd::impl::set_post_acc_grad_hooks(each.parameter, std::make_unique<MarkGradient>(each.cut));
      impl_->parameters.push_back({each.cut->name(), each.parameter, each.cut->part()});
    }
  }
  if (group.size() == 1) return;
  for (const auto& item : module.named_parameters())
    if (seen.insert(item.value().unsafeGetTensorImpl()).second)
      impl_->touched.push_back(
          {item.value(),
           {},
           add_hook(item.value(), [name = item.key(), group, compared = false](const at::Tensor& gradient) mutable {
             return compare_once(gradient, name, group, compared);
           })});
}

TensorParallel::TensorParallel(TensorParallel&&) noexcept = default;
TensorParallel::~TensorParallel() = default;

const TensorParallelOptions& TensorParallel::options() const { return impl_->options; }
const std::vector<TensorParallelParameter>& TensorParallel::parameters() const { return impl_->parameters; }

void TensorParallel::restore() {
  for (const Impl::Touched& touched : impl_->touched) {
    touched.parameter.remove_hook(touched.hook);
    if (touched.cut) parallel::undo_cut(touched.parameter, *touched.cut);
    touched.parameter.mutable_grad().reset();
  }
  impl_->touched.clear();
  impl_->parameters.clear();
}

std::vector<std::int64_t> whole_shape(const at::Tensor& parameter) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->part().whole : parameter.sizes().vec();
}

at::Tensor gather_tensor_parts(const at::Tensor& parameter, const at::Tensor& part) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->whole(part) : part;
}

at::Tensor own_tensor_part(const at::Tensor& parameter, const at::Tensor& whole) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->own(whole) : whole;
}

}  // namespace tessera
