#include <tessera/parallel/pipeline/tied_embedding.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

namespace tessera::parallel {
namespace {
// The pipeline's own messages use tag 0, and groups of the same ranks may share their connections (World::split).
constexpr int message_tag = 1;
}  // namespace

void TiedGradient::enter(const layout::schedule::Action& action) {
  using layout::schedule::Kind;
  if (action.kind != Kind::backward && action.kind != Kind::input_gradient) return;
  const int micro_batch = action.micro_batch;
  if (action.stage == options_.last_stage)
    edit_ = edit_gradient(parameter_,
                          [this, micro_batch](const at::Tensor& gradient) { return take_head(micro_batch, gradient); });
  else if (action.stage == 0 && options_.fixed_order)
    edit_ = edit_gradient(parameter_,
                          [this, micro_batch](const at::Tensor& gradient) { return with_head(micro_batch, gradient); });
}

/// Returns zeros: nothing of the head's gradient remains here.
at::Tensor TiedGradient::take_head(int micro_batch, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  if (!options_.fixed_order) {
    if (head_.defined())
      head_.add_(gradient);
    else
      head_ = gradient.clone();
  } else if (options_.first_rank == options_.last_rank) {
    heads_[micro_batch] = gradient.clone();
  } else {
    const comm::Tag tag("tied embeddings");
    sent_.push_back(options_.group.send(gradient.contiguous(), options_.first_rank, message_tag));
  }
  return at::zeros({1}, gradient.options()).expand(gradient.sizes());
}

at::Tensor TiedGradient::with_head(int micro_batch, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  if (options_.first_rank == options_.last_rank) return heads_.extract(micro_batch).mapped() + gradient;
  const comm::Tag tag("tied embeddings");
  const at::Tensor head = at::empty(gradient.sizes(), gradient.options());
  options_.group.recv(head, options_.last_rank, message_tag).wait();
  return head + gradient;
}

void TiedGradient::end_batch() {
  for (comm::Work& work : sent_) work.wait();
  sent_.clear();
}

void TiedGradient::add_to(Sharded& sharded, const std::string& name) {
  if (!head_.defined()) return;
  const at::NoGradGuard no_grad;
  const auto& parameters = sharded.named_parameters();
  const auto tied = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
  TESSERA_CHECK(tied != parameters.end(), "the tied parameter ", name, " is not trained on this rank");
  const at::Tensor head = std::exchange(head_, {}).contiguous();
  if (const comm::Group& group = sharded.options().group; group.size() > 1) {
    const comm::Tag tag("tied embeddings");
    group.all_reduce(head, comm::Reduction::sum).wait();
  }
  at::Tensor& gradient = tied->local.mutable_grad();
  gradient.add_(head.flatten().narrow(0, tied->begin, gradient.numel()).view(gradient.sizes()));
}

void add_tied_gradients(Sharded& sharded, const std::string& parameter, const comm::Group& pipeline, int first,
                        int last) {
  const int rank = pipeline.rank();
  if (parameter.empty() || first == last || (rank != first && rank != last)) return;
  const auto& parameters = sharded.named_parameters();
  const auto tied =
      std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == parameter; });
  if (tied == parameters.end()) return;  // frozen
  const at::NoGradGuard no_grad;
  const comm::Tag tag("tied embeddings");
  const int other = rank == first ? last : first;
  const auto exchange = [&](const at::Tensor& sent, const at::Tensor& received) {
    comm::Work send = pipeline.send(sent, other), receive = pipeline.recv(received, other);
    send.wait();
    receive.wait();
  };
  // The two stages may divide the parameter at different positions, so the other rank's part is cut from the whole.
  const at::Tensor own = tied->local.grad();
  const at::Tensor place = at::tensor({tied->begin, tied->local.numel()}, at::kLong).to(own.device());
  at::Tensor others_place = at::empty_like(place);
  exchange(place, others_place);
  others_place = others_place.cpu();
  const auto* const wanted = others_place.const_data_ptr<std::int64_t>();
  const at::Tensor whole = tied->divided ? sharded.gather_like(*tied, own).flatten() : own.flatten();
  const at::Tensor received = at::empty({own.numel()}, whole.options());
  exchange(whole.narrow(0, wanted[0], wanted[1]).contiguous(), received);
  const at::Tensor mine = whole.narrow(0, tied->begin, own.numel());
  tied->local.mutable_grad().copy_((rank == first ? mine + received : received + mine).view(own.sizes()));
}

void add_tied_gradients(const at::Tensor& parameter, const comm::Group& pipeline, const std::vector<int>& holders) {
  const int rank = pipeline.rank();
  if (holders.size() < 2 || std::find(holders.begin(), holders.end(), rank) == holders.end()) return;
  const at::NoGradGuard no_grad;
  const comm::Tag tag("tied parameters");
  const int first = holders.front();
  at::Tensor gradient = parameter.grad();
  at::Tensor there = at::full({1}, gradient.defined() ? 1 : 0, at::TensorOptions(at::kLong).device(pipeline.device()));
  gradient = gradient.defined() ? gradient.contiguous() : at::zeros(parameter.sizes(), parameter.options());
  // The first holder adds the gradients in order, so that the sum's bits do not depend on timing.
  if (rank != first) {
    pipeline.send(there, first).wait();
    pipeline.send(gradient, first).wait();
    pipeline.recv(there, first).wait();
    gradient = at::empty_like(gradient);
    pipeline.recv(gradient, first).wait();
  } else {
    at::Tensor others = at::empty_like(gradient), others_there = at::empty_like(there), sum = gradient.clone();
    for (const int other : holders) {
      if (other == first) continue;
      pipeline.recv(others_there, other).wait();
      pipeline.recv(others, other).wait();
      there += others_there;
      sum += others;
    }
    for (const int other : holders) {
      if (other == first) continue;
      pipeline.send(there, other).wait();
      pipeline.send(sum, other).wait();
    }
    gradient = sum;
  }
  if (there.item<std::int64_t>() > 0) parameter.mutable_grad() = gradient;
}

}  // namespace tessera::parallel
