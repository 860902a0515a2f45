// The engine's checks of the module, at wrapping and at every backward.
#include <tessera/parallel/sharding/engine.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/replicas.h>

#include <algorithm>

namespace tessera {

using parallel::GroupPlan;
using parallel::NamedTensor;

void Sharded::Impl::check_module() const {
  const bool any_trained = std::any_of(parameters_.parameters.begin(), parameters_.parameters.end(),
                                       [](const NamedTensor& p) { return p.tensor.requires_grad(); });
  if (!any_trained && !options_.stages)  // a pipeline stage must take part in the other stages' steps
    throw InputError(concat("sharding: module '", module_.name(), "' has no parameter that requires grad (",
                            parameters_.parameters.size(),
                            " frozen), so there is nothing to reduce; use the module without wrapping it"));
  for (const NamedTensor& p : parameters_.parameters) {
    const bool deferred = parallel::is_deferred(p.tensor);
    if (p.tensor.device() != context_.data_parallel.device() && !deferred)
      throw InputError(concat("sharding: parameter '", p.name, "' is on ", p.tensor.device().str(), ", but group '",
                              context_.data_parallel.name(), "' works on ", context_.data_parallel.device().str(),
                              "; move the module there first"));
    if (p.tensor.requires_grad() && at::isComplexType(p.tensor.scalar_type()))
      throw InputError(concat("sharding: parameter '", p.name, "' is ", c10::toString(p.tensor.scalar_type()),
                              "; gradients of complex numbers cannot be reduced: register at::view_as_real() of it "
                              "and use at::view_as_complex() in forward"));
    if (parallel::managed_storage(p.tensor) != nullptr ||
        (p.tensor.requires_grad() && parallel::has_gradient_hook(p.tensor)))
      throw InputError(
          concat("sharding: parameter '", p.name,
                 "' belongs to a module that is already wrapped (the same module twice, or two that share "
                 "a part); wrap one module that contains them all, once, or destroy the other wrapper first"));
  }
}

/// A view that a constructor stored (wt = weight.t()) would not follow the parameter.
void Sharded::Impl::refuse_stored_views() const {
  std::vector<at::Tensor> all;
  for (const NamedTensor& p : parameters_.parameters) all.push_back(p.tensor);
  for (const GroupPlan& group : plan_.groups)
    for (const std::size_t i : group.parameters) {
      const NamedTensor& p = parameters_.parameters[i];
      if (!parallel::is_deferred(p.tensor) && parallel::stored_views(p.tensor, all) > 0)
        throw InputError(concat("sharding: there is a view of parameter '", p.name,
                                "' (a member such as wt = weight.t(), detach(), or an existing graph): it would "
                                "keep the current memory and values; create such views in forward, and "
                                "release or clone() all others before sharding the module"));
    }
}

void Sharded::Impl::check_frozen() const {
  for (const std::size_t i : frozen_)
    if (const NamedTensor& p = parameters_.parameters[i]; p.tensor.requires_grad())
      throw Error(concat(
          "data parallelism: parameter '", p.name,
          "' was frozen when the module was wrapped but now requires grad, so its gradients are not reduced; wrap "
          "the module again after unfreezing"));
}

/// Parameters registered after wrapping (a layer that the first forward creates, a replaced sub-module) are in no flat
/// gradient: their gradients would stay local to this rank.
void Sharded::Impl::check_unknown() const {
  for (const auto& p : module_.named_parameters())
    if (p.value().defined() && p.value().requires_grad() && !known_.contains(p.value().unsafeGetTensorImpl()))
      throw Error(
          concat("data parallelism: parameter '", p.key(),
                 "' was registered after the module was wrapped, so its gradients are not reduced; build the whole "
                 "module first (run forward on one batch for layers that are created there), then wrap it"));
}

/// If every rank has its own whole parameters, a program may give them different values per rank: after wrapping,
/// before the first reduction (data-dependent initialisation), or by replacing memory.
void Sharded::Impl::check_values() {
  if (!plain() || context_.data_parallel.size() == 1) return;
  std::vector<const void*> memory;
  for (const NamedTensor& p : parameters_.parameters) memory.push_back(p.tensor.const_data_ptr());
  if (std::exchange(memory_, memory) == memory) return;
  try {
    parallel::require_same_bits(context_.data_parallel, parameters_.parameters, "parameter");
  } catch (const parallel::ReplicasDiffer& error) {
    throw parallel::ReplicasDiffer(
        concat(error.what(),
               ". It was changed, or its memory replaced, after the module was wrapped (set_data(), torch::load(), "
               "data-dependent initialisation): do so before wrapping, or with the same values on every rank"));
  }
}

}  // namespace tessera
