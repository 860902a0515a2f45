#pragma once
/// \file
/// What one rank of a pipeline receives and sends in a batch: one channel per ordered pair of ranks, first in, first
/// out, as layout/schedule/check.h has it. Receives are posted ahead of need, sends are waited for late.

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

/// What a stage hands to the next one in a micro-batch; its gradient has the same type and sizes.
struct Passed {
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;  ///< false: nothing before is trained, and no gradient goes back
  std::vector<std::int64_t> sizes;

  bool operator==(const Passed&) const = default;
};
/// "float32 [2, 8, 16]", and "without gradient".
std::string text_of(const Passed& passed);

struct PipelineMessagesOptions {
  comm::Group group, back;  ///< see PipelineOptions
  std::function<std::vector<std::int64_t>(int micro_batch)> sizes;
  bool variable_sizes = false;
};

/// The messages of this rank. A forward message is led by a header (type, sizes, whether a gradient is wanted) where
/// the receiver cannot know them: see needs_header(). A gradient needs none, since the receiver made the output.
class PipelineMessages {
 public:
  using Action = layout::schedule::Action;

  explicit PipelineMessages(PipelineMessagesOptions options) : options_(std::move(options)) {}

  /// `receives` in the order in which this rank does them; `outstanding`: K of check.h. Posts the first ones.
  void begin(const layout::schedule::Schedule& schedule, const std::vector<Action>& receives, int outstanding);
  /// Gradients of this output may be received from now on.
  void expect_gradient(int stage, int micro_batch, const Passed& output);
  /// Posts what can be posted, lets go of what was sent. Does not block.
  void progress();
  /// Whether receive() of this would return at once.
  bool arrived(const Action& receive) const;

  struct Received {
    at::Tensor tensor;  ///< undefined: a gradient that nobody wants
    bool requires_grad = false;
  };
  /// The next of its channel. Blocks until it is here; throws Error when it is not the next one.
  Received receive(const Action& receive);
  /// Starts to send; blocks only while K messages of the channel are on their way. `requires_grad`: of an output.
  void send(const Action& send, const at::Tensor& tensor, bool requires_grad);
  /// Waits for all that was sent. Throws Error when something was never received here.
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
  /// Type, sizes and so on of a forward message without header.
  Passed known(int boundary, int micro_batch) const;
  /// False: what it will be is not known yet.
  bool post(Incoming& incoming, int source, bool blocking);

  PipelineMessagesOptions options_;
  int self_ = 0;
  std::vector<int> rank_of_;
  std::size_t outstanding_ = 1;
  std::map<int, std::deque<Incoming>> incoming_;   // by source
  std::map<int, std::deque<Outgoing>> outgoing_;   // by destination
  std::map<std::pair<int, int>, Passed> outputs_;  // whose gradient is still to come, by stage and micro-batch
  std::set<int> sent_;                             // boundaries that something was sent over in this batch
  std::map<int, Passed> learnt_;                   // in this batch, by boundary (the stage before it)
};

}  // namespace tessera::parallel
