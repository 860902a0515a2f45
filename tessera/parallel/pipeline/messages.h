#pragma once
/// \file
/// Messages that one rank of a pipeline receives and sends in a batch: one first-in, first-out channel per ordered pair
/// of ranks, as layout/schedule/check.h assumes. Receives are posted early, sends are waited for late.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/layout/schedule/schedule.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Description of a tensor that a stage passes to the next one in a micro-batch; its gradient has the same type and
/// sizes.
struct Passed {
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;  ///< false: nothing before is trained, so no gradient is sent back
  std::vector<std::int64_t> sizes;

  bool operator==(const Passed&) const = default;
};
/// "float32 [2, 8, 16]", with " without gradient" appended if none is required.
std::string text_of(const Passed& passed);

struct PipelineMessagesOptions {
  comm::Group group, back;  ///< see PipelineOptions
  std::function<std::vector<std::int64_t>(int micro_batch)> sizes;
  bool variable_sizes = false;
};

/// The messages of this rank. A forward message is preceded by a header (type, sizes, whether a gradient is wanted) if
/// the receiver cannot know these: see needs_header(). A gradient needs no header, since the receiver produced the
/// output.
class PipelineMessages {
 public:
  using Action = layout::schedule::Action;

  explicit PipelineMessages(PipelineMessagesOptions options) : options_(std::move(options)) {}

  /// `receives`: in this rank's order of execution; `outstanding`: K of check.h. Posts the first receives.
  void begin(const layout::schedule::Schedule& schedule, const std::vector<Action>& receives, int outstanding);
  /// Allows receiving gradients of this output.
  void expect_gradient(int stage, int micro_batch, const Passed& output);
  /// Posts the receives that can be posted and releases sent tensors. Does not block.
  void progress();
  /// Whether receive() of this action would return at once.
  bool arrived(const Action& receive) const;

  struct Received {
    at::Tensor tensor;  ///< undefined: the gradient is not wanted
    bool requires_grad = false;
  };
  /// Returns the next message of the action's channel. Blocks until it has arrived; throws Error if it belongs to
  /// another action.
  Received receive(const Action& receive);
  /// Starts a send; blocks only while K messages of the channel are in flight. `requires_grad`: whether an output
  /// requires grad.
  void send(const Action& send, const at::Tensor& tensor, bool requires_grad);
  /// Waits for all sends. Throws Error if an expected message was never received here.
  void end();

 private:
  struct Incoming {
    Action action;
    bool first = false;  // forward: the first of its stage in the batch
    bool posted = false;
    Passed what;
    at::Tensor header, tensor;
    comm::Work work;
  };
  struct Outgoing {
    std::vector<comm::Work> works;
    bool done() const;
    void wait();
  };

  const comm::Group& group_to(int rank) const { return options_.back && rank < self_ ? options_.back : options_.group; }
  const comm::Group& group_from(int rank) const {
    return options_.back && rank > self_ ? options_.back : options_.group;
  }
  bool needs_header(bool first) const;
  /// Description of a forward message without header.
  Passed known(int boundary, int micro_batch) const;
  /// Posts a receive; false if its type and sizes are not known yet.
  bool post(Incoming& incoming, int source, bool blocking);

  PipelineMessagesOptions options_;
  int self_ = 0;
  std::vector<int> rank_of_;
  std::size_t outstanding_ = 1;
  std::map<int, std::deque<Incoming>> incoming_;   // by source
  std::map<int, std::deque<Outgoing>> outgoing_;   // by destination
  std::map<std::pair<int, int>, Passed> outputs_;  // outputs that await their gradients, by stage and micro-batch
  std::set<int> sent_;                             // boundaries that a message has already crossed in this batch
  std::map<int, Passed> learnt_;  // descriptions received in this batch, by boundary (the stage before it)
};

}  // namespace tessera::parallel
