#include <tessera/parallel/replicas/replica_gather.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/replicas/private_buffers.h>
#include <tessera/parallel/replicas/random_stream.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tessera::parallel {
namespace {

using torch::autograd::variable_list;

std::string shapes(const ReplicaCall& call, std::size_t output) {
  std::string text;
  for (const auto& replica : call.replicas) {
    const at::Tensor& tensor = replica.outputs[output];
    text += text.empty() ? "" : ", ";
    if (!tensor.defined()) {
      text += "none";
      continue;
    }
    text += "[";
    for (std::int64_t i = 0; i < tensor.dim(); ++i) text += concat(i > 0 ? ", " : "", tensor.size(i));
    text += "]";
  }
  return text;
}

/// Fills call.outputs; throws Error when one cannot be joined.
void check_outputs(ReplicaCall& call) {
  const std::size_t count = call.replicas.front().outputs.size();
  for (std::size_t r = 1; r < call.replicas.size(); ++r)
    if (call.replicas[r].outputs.size() != count)
      throw Error(concat("DataParallel: ", call.name(0), " returned ", count, " tensors and ",
                         call.name(static_cast<int>(r)), " ", call.replicas[r].outputs.size(),
                         "; every replica must return the same number"));
  call.outputs.assign(count, {});
  for (std::size_t k = 0; k < count; ++k) {
    const at::Tensor& first = call.replicas.front().outputs[k];
    ReplicaCall::Output& output = call.outputs[k];
    output.defined = first.defined();
    output.scalar = first.defined() && first.dim() == 0;
    std::int64_t begin = 0;
    for (const auto& replica : call.replicas) {
      const at::Tensor& other = replica.outputs[k];
      const bool fits =
          other.defined() == first.defined() &&
          (!first.defined() || (other.dim() == first.dim() && other.scalar_type() == first.scalar_type() &&
                                (first.dim() == 0 || other.sizes().slice(1) == first.sizes().slice(1))));
      if (!fits)
        throw Error(concat("DataParallel: output ", k + 1, " of the replicas cannot be joined along dimension 0: ",
                           shapes(call, k), " (all sizes except the first, and the types, must be equal)"));
      output.begins.push_back(begin);
      if (!other.defined()) continue;
      begin += output.scalar ? 1 : other.size(0);
      output.differentiable = output.differentiable || other.requires_grad();
    }
  }
}

at::Tensor join(const ReplicaCall& call, std::size_t output) {
  std::vector<at::Tensor> parts;
  for (const auto& replica : call.replicas) {
    at::Tensor part = replica.outputs[output];
    if (!part.defined()) return {};
    part = part.detach().to(call.output_device);
    parts.push_back(call.outputs[output].scalar ? part.unsqueeze(0) : part);
  }
  return parts.size() == 1 && !call.outputs[output].scalar ? parts.front() : at::cat(parts);
}

/// Whether `tensor` is the only owner of its memory, so that it may be added to in place.
bool mine(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.layout() == c10::Layout::Strided && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense();
}

void add_to(at::Tensor& sum, at::Tensor term) {
  if (!term.defined()) return;
  if (!sum.defined()) {
    sum = std::move(term);
    return;
  }
  term = term.to(sum.device());
  if (mine(sum) && sum.scalar_type() == term.scalar_type())
    sum.add_(term);
  else
    sum = sum + term;
}

/// Combines the replicas' gradients, [replica], into one.
at::Tensor combine(const ReplicaCall& call, std::size_t variable, std::vector<at::Tensor>& parts) {
  const auto& [tensor, scattered] = call.variables[variable];
  if (std::ranges::none_of(parts, [](const at::Tensor& part) { return part.defined(); })) return {};
  if (!scattered) {
    at::Tensor sum;
    for (at::Tensor& part : parts) add_to(sum, std::exchange(part, at::Tensor()));
    return sum.to(tensor.device());
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].defined()) {
      auto sizes = tensor.sizes().vec();
      sizes[0] = call.rows[r];
      parts[r] = at::zeros(sizes, tensor.options().requires_grad(false));
    }
    parts[r] = parts[r].to(tensor.device());
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

/// The start and end of a backward: outputs with their gradients, and leaves.
struct Ends {
  variable_list outputs, gradients, leaves;

  /// Appends the ends of replica `number`, given the gradients of the gathered outputs; skips outputs that no gradient
  /// reaches.
  void add(const ReplicaCall& call, int number, const variable_list& gathered) {
    const ReplicaCall::Replica& replica = call.replicas[static_cast<std::size_t>(number)];
    const std::size_t before = outputs.size();
    for (std::size_t k = 0, defined = 0; k < replica.outputs.size(); ++k) {
      const at::Tensor& output = replica.outputs[k];
      if (!output.defined()) continue;
      const at::Tensor& gradient = gathered[defined++];
      if (!gradient.defined() || !output.requires_grad()) continue;
      outputs.push_back(output);
      const std::int64_t begin = call.outputs[k].begins[static_cast<std::size_t>(number)];
      gradients.push_back(
          (call.outputs[k].scalar ? gradient.select(0, begin) : gradient.narrow(0, begin, output.size(0)))
              .to(output.device()));
    }
    if (outputs.size() == before) return;
    for (const auto& leaf : replica.leaves) leaves.push_back(leaf.tensor);
  }
  variable_list backward(bool keep) const {
    if (leaves.empty()) return {};
    return torch::autograd::grad(outputs, leaves, gradients, keep, /*create_graph=*/false, /*allow_unused=*/true);
  }
};

/// Gradients of one replica, [variable]; `found`: the gradients of its leaves, or empty.
variable_list by_variable(const ReplicaCall& call, int number, std::span<at::Tensor> found) {
  variable_list result(call.variables.size());
  const auto& leaves = call.replicas[static_cast<std::size_t>(number)].leaves;
  for (std::size_t i = 0; i < found.size(); ++i)
    add_to(result[leaves[i].parameter], std::exchange(found[i], at::Tensor()));
  return result;
}

/// Gradients [replica][variable], each computed by its team.
std::vector<variable_list> backward_of_teams(ReplicaCall& call, const variable_list& gathered, bool keep) {
  std::vector<variable_list> all(call.replicas.size());
  const PrivateBuffers buffers(call.buffers);  // activation checkpointing runs forward again
  call.teams->run(
      static_cast<int>(all.size()),
      [&](int r) {
        const PartOfBackward part;
        const RandomStream stream(call.teams->generator(r));
        const auto copies = buffers.copies();
        const PrivateBuffers::Use use(*copies);
        Ends ends;
        ends.add(call, r, gathered);
        variable_list found = ends.backward(keep);
        all[static_cast<std::size_t>(r)] = by_variable(call, r, found);
        if (!keep) call.replicas[static_cast<std::size_t>(r)] = {};
      },
      [&](int r) { return concat(call.name(r), ", backward"); });
  return all;
}

/// The same on devices, in one run of the engine, which has one thread per device: the calling thread may be one of
/// those, and a team that needed it would wait forever.
std::vector<variable_list> backward_of_devices(ReplicaCall& call, const variable_list& gathered, bool keep) {
  const PartOfBackward part;
  Ends ends;
  std::vector<std::size_t> begins = {0};  // index of each replica's first leaf
  for (std::size_t r = 0; r < call.replicas.size(); ++r) {
    ends.add(call, static_cast<int>(r), gathered);
    begins.push_back(ends.leaves.size());
  }
  variable_list found;
  try {
    found = ends.backward(keep);
  } catch (const std::exception& error) {
    std::ranges::fill(call.replicas, ReplicaCall::Replica{});
    throw Error(concat("DataParallel: backward of ", call.replicas.size(), " replicas on devices: ", error.what()));
  }
  std::vector<variable_list> all;
  for (std::size_t r = 0; r < call.replicas.size(); ++r)
    all.push_back(
        by_variable(call, static_cast<int>(r), std::span(found).subspan(begins[r], begins[r + 1] - begins[r])));
  if (!keep) std::ranges::fill(call.replicas, ReplicaCall::Replica{});
  return all;
}

bool on_devices(const ReplicaCall& call) {
  return std::ranges::any_of(call.replicas, [](const auto& replica) {
    return std::ranges::any_of(replica.leaves, [](const auto& leaf) { return !leaf.tensor.is_cpu(); });
  });
}

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList,
                               const c10::intrusive_ptr<ReplicaCall>& call) {
    variable_list joined, constant;
    for (std::size_t k = 0; k < call->outputs.size(); ++k) {
      if (!call->outputs[k].defined) continue;
      joined.push_back(join(*call, k));
      if (!call->outputs[k].differentiable) constant.push_back(joined.back());
    }
    context->mark_non_differentiable(constant);
    context->set_materialize_grads(false);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return joined;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gathered) {
    const auto held = context->saved_data["call"].toCapsule();
    auto& call = static_cast<ReplicaCall&>(*held);
    if (at::GradMode::is_enabled())
      throw Error("DataParallel: backward(create_graph = true) is not supported: gradients of replicas have no graph");
    if (call.used_up)
      throw Error("DataParallel: a second backward through the same call; use retain_graph = true in the first");
    const bool keep = current_backward_keeps_graph();
    const int count = static_cast<int>(call.replicas.size());
    call.used_up = !keep;
    std::vector<variable_list> found =
        on_devices(call) ? backward_of_devices(call, gathered, keep) : backward_of_teams(call, gathered, keep);

    // Adding is distributed over the teams by variable: within a variable the order is that of the replicas, whichever
    // team adds.
    variable_list result(call.variables.size() + 1);  // the call itself has no gradient
    std::vector<int> worker(call.variables.size());
    std::vector<std::int64_t> load(static_cast<std::size_t>(count), 0);
    for (std::size_t v = 0; v < worker.size(); ++v) {
      const auto least = std::ranges::min_element(load);
      *least += call.variables[v].tensor.numel();
      worker[v] = static_cast<int>(least - load.begin());
    }
    call.teams->run(
        count,
        [&](int r) {
          for (std::size_t v = 0; v < worker.size(); ++v) {
            if (worker[v] != r) continue;
            std::vector<at::Tensor> parts;
            for (variable_list& of_replica : found) parts.push_back(std::exchange(of_replica[v], at::Tensor()));
            result[v] = combine(call, v, parts);
          }
        },
        [&](int r) { return concat(call.name(r), ", sum of gradients"); });
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> gather(const c10::intrusive_ptr<ReplicaCall>& call) {
  check_outputs(*call);
  std::vector<at::Tensor> result(call->outputs.size());
  if (std::ranges::none_of(call->outputs, &ReplicaCall::Output::differentiable)) {
    for (std::size_t k = 0; k < result.size(); ++k) result[k] = join(*call, k);
    return result;
  }
  variable_list variables;
  for (const auto& variable : call->variables) variables.push_back(variable.tensor);
  const variable_list joined = GatherFunction::apply(at::TensorList(variables), call);
  std::size_t next = 0;
  for (std::size_t k = 0; k < result.size(); ++k)
    if (call->outputs[k].defined) result[k] = joined[next++];
  return result;
}

}  // namespace tessera::parallel
