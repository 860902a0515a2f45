#include <tessera/parallel/pipeline/tied.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include <tessera/comm/recorder.h>

namespace tessera::parallel {

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
  // The two stages may divide the parameter in other places, so what the other rank has is cut from the whole.
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
  // The first one adds up in order, so that the sum has the bits of no particular timing.
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
