// What the engine asks of the module, when it is wrapped and at every backward.
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
  if (!any_trained && !options_.stages)  // a stage of a pipeline goes through the steps of the others
    throw InputError(concat("sharding: module '", module_.name(), "' has no parameter that requires gradient (",
                            parameters_.parameters.size(), " frozen); there is nothing to reduce, use it as it is"));
  for (const NamedTensor& p : parameters_.parameters) {
    const bool deferred = parallel::is_deferred(p.tensor);
    if (p.tensor.device() != context_.data_parallel.device() && !deferred)
      throw InputError(concat("sharding: parameter '", p.name, "' is on ", p.tensor.device().str(), " but group '",
                              context_.data_parallel.name(), "' works on ", context_.data_parallel.device().str(),
                              "; move the module there first"));
    if (p.tensor.requires_grad() && at::isComplexType(p.tensor.scalar_type()))
      throw InputError(concat("sharding: parameter '", p.name, "' is ", c10::toString(p.tensor.scalar_type()),
                              "; gradients of complex numbers are not reduced here: register at::view_as_real() of it "
                              "and use at::view_as_complex() in forward"));
    if (parallel::managed_storage(p.tensor) != nullptr ||
        (p.tensor.requires_grad() && parallel::has_gradient_hook(p.tensor)))
      throw InputError(concat("sharding: parameter '", p.name,
                              "' belongs to a module that is wrapped already (twice the same module, or two that share "
                              "a part); wrap one module that holds them all, once, or end the other wrapper first"));
  }
}

/// A view that a constructor kept (wt = weight.t()) would not see what happens to the parameter.
void Sharded::Impl::refuse_stored_views() const {
  std::vector<at::Tensor> all;
  for (const NamedTensor& p : parameters_.parameters) all.push_back(p.tensor);
  for (const GroupPlan& group : plan_.groups)
    for (const std::size_t i : group.parameters) {
      const NamedTensor& p = parameters_.parameters[i];
      if (!parallel::is_deferred(p.tensor) && parallel::stored_views(p.tensor, all) > 0)
        throw InputError(concat("sharding: somebody holds a view of parameter '", p.name,
                                "' (a member like wt = weight.t(), detach(), or a graph that is still alive): it would "
                                "keep the memory and the values of this moment; make such views in forward, and let "
                                "others go, or clone() them, before the module is sharded"));
    }
}

void Sharded::Impl::check_frozen() const {
  for (const std::size_t i : frozen_)
    if (const NamedTensor& p = parameters_.parameters[i]; p.tensor.requires_grad())
      throw Error(
          concat("data parallelism: parameter '", p.name,
                 "' was frozen when the module was wrapped and requires grad now; its gradients are not reduced; wrap "
                 "the module again after unfreezing"));
}

/// What was registered after wrapping (a layer that the first forward makes, a replaced sub-module) lies in no flat
/// gradient: its gradients would stay this rank's own.
void Sharded::Impl::check_unknown() const {
  for (const auto& p : module_.named_parameters())
    if (p.value().defined() && p.value().requires_grad() && !known_.contains(p.value().unsafeGetTensorImpl()))
      throw Error(
          concat("data parallelism: parameter '", p.key(),
                 "' was registered after the module was wrapped; its gradients are not reduced; build the whole "
                 "module first (a forward of one batch makes layers that are made in forward), then wrap it"));
}

/// Where every rank has whole parameters of its own, nothing keeps a program from giving them other values on every
/// rank: after wrapping, before the first reduction (initialisation that depends on data), or by replacing memory.
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
               "initialisation that depends on data): do so before wrapping, or with the same values on every rank"));
  }
}

}  // namespace tessera
