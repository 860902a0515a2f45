#include <tessera/parallel/tensor_parallel.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/agree.h>
#include <tessera/comm/world.h>
#include <tessera/parallel/sharding/managed.h>
#include <tessera/parallel/tensor/cut.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tessera {

struct TensorParallel::Impl {
  TensorParallelOptions options;
  std::vector<TensorParallelParameter> parameters;
  struct Touched {
    at::Tensor parameter;
    std::optional<unsigned> hook;  ///< sums its gradient
  };
  std::vector<Touched> touched;
};

namespace {

struct Planned {
  at::Tensor parameter;
  c10::intrusive_ptr<parallel::Cut> cut;
};

/// What the plan says of each parameter of the module; nothing is changed yet.
std::vector<Planned> make_cuts(const torch::nn::Module& module, const TensorParallelOptions& options) {
  const auto activations = std::make_shared<parallel::Cut::Activations>();
  if (options.sequence_parallel) activations->between = parallel::Between::own_tokens;
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
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;  // tied: the first name counts
    if (parallel::is_managed(item.value()))
      throw InputError(concat("tensor parallelism: '", name,
                              "' is sharded, or has no memory yet (deferred construction): cut the whole module first, "
                              "then shard its parts"));
    if (parallel::cut_of(item.value()) != nullptr)
      throw InputError(concat("tensor parallelism: '", name, "' is cut already"));
    layout::TensorRule said = *rule;
    // Row-parallel layers end with this rank's tokens: their biases are added to those only.
    if (options.sequence_parallel && item.value().dim() == 1 &&
        (said.style == TensorStyle::rowwise || said.style == TensorStyle::rowwise_split_input))
      said.style = TensorStyle::sequence_parallel;
    if (said.style == TensorStyle::sequence_parallel && !options.sequence_parallel) continue;
    auto cut =
        c10::make_intrusive<parallel::Cut>(name, std::move(said), item.value().sizes(), options.group, activations);
    if (cut->divided() || cut->sums_gradient()) planned.push_back({item.value(), std::move(cut)});
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) {
      const std::string& pattern = options.plan[i].pattern;
      const auto near = nearest(pattern, names);
      throw InputError(concat("tensor parallelism: no parameter matches '", pattern, "'",
                              near ? concat("; there is '", *near, "'") : std::string()));
    }
  return planned;
}

/// One line per parameter: what ranks must agree in.
std::string digest(const std::vector<Planned>& planned) {
  std::string text;
  for (const Planned& each : planned)
    text += concat(each.cut->name(), " ", c10::str(each.cut->part().whole), " dim ", each.cut->part().dim, "\n");
  return text;
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
    throw InputError(concat("tensor parallelism: ranks of ", group.name(), " have other modules or plans: rank 0 has '",
                            line(all[0], static_cast<std::size_t>(a - all[0].begin())), "', rank ", rank, " '",
                            line(all[rank], static_cast<std::size_t>(b - all[rank].begin())), "'"));
  }
}

}  // namespace

TensorParallel::TensorParallel(torch::nn::Module& module, TensorParallelOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (!options.group) options.group = world().group();
  impl_->options = std::move(options);
  std::vector<Planned> planned;
  comm::agree(impl_->options.group, [&] { planned = make_cuts(module, impl_->options); });
  check_agreement(impl_->options.group, digest(planned));
  for (Planned& each : planned) {
    parallel::apply_cut(each.parameter, each.cut);
    Impl::Touched& touched = impl_->touched.emplace_back(Impl::Touched{each.parameter, {}});
    if (each.cut->sums_gradient() && each.parameter.requires_grad())
      touched.hook =
          each.parameter.register_hook([cut = each.cut](const at::Tensor& g) { return cut->sum_gradient(g); });
    if (each.cut->divided()) impl_->parameters.push_back({each.cut->name(), each.parameter, each.cut->part()});
  }
}

TensorParallel::TensorParallel(TensorParallel&&) noexcept = default;
TensorParallel::~TensorParallel() = default;

const TensorParallelOptions& TensorParallel::options() const { return impl_->options; }
const std::vector<TensorParallelParameter>& TensorParallel::parameters() const { return impl_->parameters; }

void TensorParallel::restore() {
  for (const auto& [parameter, hook] : impl_->touched) {
    if (hook) parameter.remove_hook(*hook);
    parallel::undo_cut(parameter);
  }
  impl_->touched.clear();
  impl_->parameters.clear();
}

std::vector<std::int64_t> whole_shape(const at::Tensor& parameter) {
  const parallel::Cut* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->part().whole : parameter.sizes().vec();
}

at::Tensor gather_tensor_parts(const at::Tensor& parameter, const at::Tensor& part) {
  const parallel::Cut* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->whole(part) : part;
}

at::Tensor own_tensor_part(const at::Tensor& parameter, const at::Tensor& whole) {
  const parallel::Cut* const cut = parallel::cut_of(parameter);
  return cut != nullptr ? cut->own(whole) : whole;
}

}  // namespace tessera
