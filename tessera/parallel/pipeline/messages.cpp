#include <tessera/parallel/pipeline/messages.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/layout/schedule/channels.h>

#include <algorithm>
#include <utility>

namespace tessera::parallel {
namespace {

using layout::schedule::Action;
using layout::schedule::Kind;

constexpr std::size_t receives_ahead = 2;  // messages posted per channel, in addition to the one being waited for
constexpr int message_tag = 0;             // messages of a channel are ordered, so one tag suffices
constexpr std::int64_t header_size = 16, fixed_part = 5;

const char* name_of(Kind kind) {
  return kind == Kind::send_forward || kind == Kind::receive_forward ? "activations" : "gradients of activations";
}

at::Tensor header_of(const Action& send, const Passed& passed, at::Device device) {
  const auto dims = static_cast<std::int64_t>(passed.sizes.size());
  if (dims > header_size - fixed_part)
    throw InputError(concat("pipeline: stage ", send.stage, " returns a tensor of ", dims, " dimensions; at most ",
                            header_size - fixed_part, " can be passed on"));
  const at::Tensor header = at::zeros({header_size}, at::kLong);
  auto* const numbers = header.mutable_data_ptr<std::int64_t>();
  numbers[0] = send.stage;
  numbers[1] = send.micro_batch;
  numbers[2] = static_cast<std::int64_t>(passed.dtype);
  numbers[3] = passed.requires_grad;
  numbers[4] = dims;
  std::copy(passed.sizes.begin(), passed.sizes.end(), numbers + fixed_part);
  return header.to(device);
}

Passed read_header(const at::Tensor& header, const Action& receive) {
  const at::Tensor here = header.cpu();
  const auto* const numbers = here.const_data_ptr<std::int64_t>();
  TESSERA_CHECK(numbers[0] == receive.stage - 1 && numbers[1] == receive.micro_batch && numbers[4] >= 0 &&
                    numbers[4] <= header_size - fixed_part,
                text_of(receive), ": the received message is from stage ", numbers[0], ", micro-batch ", numbers[1],
                "; do the ranks run the same schedule?");
  return {static_cast<at::ScalarType>(numbers[2]), numbers[3] != 0,
          std::vector(numbers + fixed_part, numbers + fixed_part + numbers[4])};
}

/// The stage before the boundary that a forward message crosses.
int boundary_of(const Action& message) {
  return message.kind == Kind::send_forward ? message.stage : message.stage - 1;
}

}  // namespace

std::string text_of(const Passed& passed) {
  return concat(c10::toString(passed.dtype), " ", at::IntArrayRef(passed.sizes),
                passed.requires_grad ? "" : " without gradient");
}

bool PipelineMessages::Outgoing::done() const {
  return std::all_of(works.begin(), works.end(), [](const comm::Work& work) { return work.done(); });
}
void PipelineMessages::Outgoing::wait() {
  for (comm::Work& work : works) work.wait();
}

void PipelineMessages::begin(const layout::schedule::Schedule& schedule, const std::vector<Action>& receives,
                             int outstanding) {
  self_ = options_.group ? options_.group.rank() : 0;
  rank_of_ = schedule.rank_of;
  outstanding_ = static_cast<std::size_t>(outstanding);
  incoming_.clear();
  outputs_.clear();
  sent_.clear();
  learnt_.clear();
  std::set<int> seen;
  for (const Action& action : receives) {
    const int source = rank_of(schedule, layout::schedule::counterpart(action));
    const bool forward = action.kind == Kind::receive_forward;
    Incoming incoming;
    incoming.action = action;
    incoming.first = forward && seen.insert(action.stage).second;
    incoming_[source].push_back(std::move(incoming));
  }
  progress();
}

void PipelineMessages::expect_gradient(int stage, int micro_batch, const Passed& output) {
  outputs_[{stage, micro_batch}] = output;
}

bool PipelineMessages::needs_header(bool first) const { return first || (options_.variable_sizes && !options_.sizes); }

Passed PipelineMessages::known(int boundary, int micro_batch) const {
  Passed passed = learnt_.at(boundary);
  if (options_.sizes) passed.sizes = options_.sizes(micro_batch);
  return passed;
}

bool PipelineMessages::post(Incoming& incoming, int source, bool blocking) {
  if (incoming.posted) return true;
  const Action& action = incoming.action;
  const comm::Group& group = group_from(source);
  const comm::Tag tag(name_of(action.kind));
  if (action.kind == Kind::receive_forward) {
    const int boundary = boundary_of(action);
    if (incoming.header.defined() || needs_header(incoming.first)) {
      if (!incoming.header.defined()) {
        incoming.header = at::empty({header_size}, at::TensorOptions(at::kLong).device(group.device()));
        incoming.work = group.recv(incoming.header, source, message_tag);
      }
      if (!blocking && !incoming.work.done()) return false;
      incoming.work.wait();
      incoming.what = read_header(incoming.header, action);
      learnt_[boundary] = incoming.what;
    } else {
      incoming.what = known(boundary, action.micro_batch);
    }
  } else {
    // The gradient cannot have been sent before this rank sent the output.
    const auto output = outputs_.find({action.stage, action.micro_batch});
    if (output == outputs_.end()) return false;
    incoming.what = output->second;
    outputs_.erase(output);
  }
  incoming.posted = true;
  if (action.kind == Kind::receive_backward && !incoming.what.requires_grad) {
    incoming.work = {};
    return true;
  }
  incoming.tensor = at::empty(incoming.what.sizes, at::TensorOptions(incoming.what.dtype).device(group.device()));
  incoming.work = group.recv(incoming.tensor, source, message_tag);
  return true;
}

void PipelineMessages::progress() {
  for (auto& [source, queue] : incoming_)
    for (std::size_t i = 0; i < std::min(queue.size(), receives_ahead); ++i)
      if (!post(queue[i], source, /*blocking=*/false)) break;
  for (auto& [destination, queue] : outgoing_)  // release tensors that have been sent
    for (; !queue.empty() && queue.front().done(); queue.pop_front()) queue.front().wait();
}

bool PipelineMessages::arrived(const Action& receive) const {
  const auto found = incoming_.find(rank_of_[static_cast<std::size_t>(layout::schedule::counterpart(receive).stage)]);
  return found != incoming_.end() && !found->second.empty() && found->second.front().action == receive &&
         found->second.front().posted && found->second.front().work.done();
}

PipelineMessages::Received PipelineMessages::receive(const Action& receive) {
  const int source = rank_of_[static_cast<std::size_t>(layout::schedule::counterpart(receive).stage)];
  auto& queue = incoming_[source];
  TESSERA_CHECK(!queue.empty() && queue.front().action == receive, text_of(receive),
                " is not the next message of its channel");
  Incoming& next = queue.front();
  TESSERA_CHECK(post(next, source, /*blocking=*/true), text_of(receive), " comes before the stage's forward");
  next.work.wait();
  Received received{std::move(next.tensor), next.what.requires_grad};
  queue.pop_front();
  progress();
  return received;
}

void PipelineMessages::send(const Action& send, const at::Tensor& tensor, bool requires_grad) {
  const int destination = rank_of_[static_cast<std::size_t>(layout::schedule::counterpart(send).stage)];
  const comm::Group& group = group_to(destination);
  auto& queue = outgoing_[destination];
  for (; queue.size() >= outstanding_; queue.pop_front()) queue.front().wait();
  const comm::Tag tag(name_of(send.kind));
  const at::Tensor out = tensor.detach().contiguous();
  Outgoing outgoing;
  if (send.kind == Kind::send_forward) {
    const int boundary = boundary_of(send);
    const Passed passed{out.scalar_type(), requires_grad, out.sizes().vec()};
    const auto differs = [&](const Passed& rule, const char* why) {
      if (passed == rule) return;
      throw InputError(concat("pipeline: stage ", send.stage, ", micro-batch ", send.micro_batch, " (", text_of(send),
                              "): the output is a ", text_of(passed), ", but expected a ", text_of(rule), ": ", why));
    };
    if (needs_header(sent_.insert(boundary).second)) {
      if (options_.sizes)
        differs({passed.dtype, passed.requires_grad, options_.sizes(send.micro_batch)},
                "the sizes that were announced for the micro-batch");
      learnt_[boundary] = passed;
      outgoing.works.push_back(group.send(header_of(send, passed, group.device()), destination, message_tag));
    } else {
      differs(known(boundary, send.micro_batch),
              options_.sizes ? "the announced sizes, and the rest as in the batch's first micro-batch"
                             : "as in the batch's first micro-batch (variable_sizes allows others)");
    }
  }
  outgoing.works.push_back(group.send(out, destination, message_tag));
  queue.push_back(std::move(outgoing));
}

void PipelineMessages::end() {
  for (const auto& [source, queue] : incoming_)
    TESSERA_CHECK(queue.empty(), text_of(queue.front().action), " was never executed");
  for (auto& [destination, queue] : outgoing_) {
    for (Outgoing& outgoing : queue) outgoing.wait();
    queue.clear();
  }
}

}  // namespace tessera::parallel
