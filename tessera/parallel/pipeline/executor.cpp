#include <tessera/parallel/pipeline/executor.h>

#include <ATen/ATen.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/world.h>
#include <tessera/layout/schedule/channels.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/nn/weight_gradients.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/pipeline/messages.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <set>
#include <typeinfo>
#include <utility>

namespace tessera::parallel {

using layout::schedule::Action;
using layout::schedule::Kind;
using layout::schedule::Schedule;

namespace {

constexpr std::size_t remembered_plans = 4;
constexpr int least_under_way = 4;  // messages per channel by which a rank may be ahead of a slower rank

using Key = std::pair<int, int>;  // stage, micro-batch
Key key_of(const Action& action) { return {action.stage, action.micro_batch}; }

/// Rethrows the exception being handled, prefixed with its position in the schedule if it has its own text.
[[noreturn]] void rethrow_with(const Action& action) {
  const auto place = [&](const std::string& what) {
    return concat("pipeline: stage ", action.stage, ", micro-batch ", action.micro_batch, " (", text_of(action),
                  "): ", what);
  };
  try {
    throw;
  } catch (const Error& error) {
    if (typeid(error) == typeid(InputError)) throw InputError(place(error.what()));
    if (typeid(error) == typeid(Error)) throw Error(place(error.what()), error.exit_code());
    throw;
  } catch (const std::exception& error) {
    throw Error(place(comm::cause_text(error)));
  }
}

}  // namespace

struct PipelineExecutor::Messages : PipelineMessages {
  using PipelineMessages::PipelineMessages;
};

/// This rank's work in a batch of a schedule.
struct PipelineExecutor::Plan {
  Schedule schedule;  // as given
  std::vector<Action> actions, receives;
  bool sends_at_once = false;  // the schedule has no sends: each result is sent as soon as it is computed
  int outstanding = least_under_way;
  bool with_backward = false;
  std::set<Key> divided;  // backward is split into I and W
};

struct PipelineExecutor::Batch {
  /// A micro-batch in flight in a stage.
  struct Cell {
    at::Tensor input;
    BackwardRoot root;
    c10::intrusive_ptr<nn::WeightGradients> late;  // set if backward is split into I and W
  };
  /// A tensor passed from one computation to another.
  struct Transfer {
    at::Tensor tensor;
    bool requires_grad = false;
  };

  explicit Batch(const Plan& the_plan, bool is_rehearsal = false) : plan(the_plan), rehearsal(is_rehearsal) {}
  const Plan& plan;
  const bool rehearsal;                   // no messages
  std::map<Key, at::TensorOptions> sent;  // in a rehearsal: options of the outputs whose gradients are expected
  std::map<Key, Cell> cells;
  std::map<Key, Transfer> inputs, output_gradients;  // by key: inputs of F, and of I or B
  std::map<Key, Transfer> outputs, input_gradients;  // by key: tensors that SEND_F and SEND_B send
  std::vector<at::Tensor> losses;
};

PipelineExecutor::PipelineExecutor(PipelineOptions options) : options_(std::move(options)) {
  if (options_.group) {
    rank_ = options_.group.rank();
    if (options_.group.size() > 1 && options_.group.capabilities().ordered_messages && !options_.back)
      throw InputError(concat("pipeline: group '", options_.group.name(), "' (", options_.group.backend(),
                              ") processes messages in the order in which both ranks start them, so a pipeline needs a "
                              "second group for messages to lower ranks: PipelineOptions::back"));
  }
  messages_ = std::make_unique<Messages>(
      PipelineMessagesOptions{options_.group, options_.back, options_.sizes, options_.variable_sizes});
}

PipelineExecutor::~PipelineExecutor() = default;

const PipelineExecutor::Plan& PipelineExecutor::plan_of(const Schedule& schedule) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p->schedule == schedule; });
  if (found != plans_.end()) {
    std::rotate(plans_.begin(), found, found + 1);
    return *plans_.front();
  }
  const int ranks = options_.group ? options_.group.size() : 1;
  if (schedule.ranks.size() != static_cast<std::size_t>(ranks))
    throw InputError(
        concat("pipeline: the schedule is for ", schedule.ranks.size(), " ranks, but the group has ", ranks));
  const std::vector<int> mine = stages_of(schedule, rank_);
  for (const int stage : mine)
    if (options_.stages.count(stage) == 0)
      throw InputError(concat("pipeline: the schedule puts stage ", stage, " on rank ", rank_,
                              ", which has no functions for it (PipelineOptions::stages)"));
  auto plan = std::make_unique<Plan>();
  plan->schedule = schedule;
  plan->sends_at_once = !has_messages(schedule);
  const Schedule whole = plan->sends_at_once ? with_messages(schedule) : schedule;
  plan->actions = whole.ranks[static_cast<std::size_t>(rank_)];
  std::copy_if(plan->actions.begin(), plan->actions.end(), std::back_inserter(plan->receives),
               [](const Action& action) { return is_message(action.kind) && !is_send(action.kind); });
  plan->outstanding = std::max(least_under_way, least_outstanding(schedule));
  plan->with_backward = has_backward(schedule);
  for (const Action& action : plan->actions)
    if (action.kind == Kind::input_gradient && !options_.undivided) plan->divided.insert(key_of(action));
  plans_.insert(plans_.begin(), std::move(plan));
  if (plans_.size() > remembered_plans) plans_.pop_back();
  return *plans_.front();
}

std::vector<at::Tensor> PipelineExecutor::run(const Schedule& schedule) {
  TESSERA_CHECK(!failed_, "pipeline: an earlier batch failed and left messages in flight; no further batch can be run");
  const Plan& plan = plan_of(schedule);
  failed_ = true;  // reset at the end
  measured_.clear();
  sums_.clear();
  begin_ns_ = monotonic_ns();
  Batch batch(plan);
  if (schedule.rank_of.back() == rank_) batch.losses.resize(static_cast<std::size_t>(schedule.micro_batches));
  {
    const at::AutoGradMode grad_mode(plan.with_backward);
    messages_->begin(plan.schedule, plan.receives, plan.outstanding);
    for (const Action& action : plan.actions) act(batch, action);
    messages_->end();
  }
  failed_ = false;
  return std::move(batch.losses);
}

void PipelineExecutor::rehearse(const Schedule& schedule) {
  TESSERA_CHECK(options_.sizes, "pipeline: a rehearsal needs the sizes of the tensors that pass between stages");
  const Plan& plan = plan_of(schedule);
  Batch batch(plan, /*is_rehearsal=*/true);
  if (schedule.rank_of.back() == rank_) batch.losses.resize(static_cast<std::size_t>(schedule.micro_batches));
  const at::AutoGradMode grad_mode(plan.with_backward);
  for (const Action& action : plan.actions) act(batch, action);
  measured_.clear();
  sums_.clear();
}

void PipelineExecutor::act(Batch& batch, const Action& action) {
  if (is_compute(action.kind)) {
    compute(batch, action);
    if (batch.plan.sends_at_once)
      if (const auto message = send_after(batch.plan.schedule, action)) send(batch, *message);
    if (!batch.rehearsal) messages_->progress();
  } else if (is_send(action.kind)) {
    if (!batch.plan.sends_at_once) send(batch, action);
  } else if (is_message(action.kind)) {
    receive(batch, action);
  } else if (options_.sharding) {
    options_.sharding(action);
  }
}

void PipelineExecutor::compute(Batch& batch, const Action& action) {
  if (options_.enter) options_.enter(action);
  comm::heartbeat().set_phase(text_of(action));
  const std::int64_t start = monotonic_ns();
  try {
    if (action.kind == Kind::forward)
      forward(batch, action);
    else
      backward(batch, action);
  } catch (...) {
    if (batch.rehearsal) throw;
    rethrow_with(action);
  }
  measured_.push_back(
      {action, 1e-9 * static_cast<double>(start - begin_ns_), 1e-9 * static_cast<double>(monotonic_ns() - begin_ns_)});
  if (options_.leave) options_.leave(action);
}

void PipelineExecutor::forward(Batch& batch, const Action& action) {
  const Key key = key_of(action);
  const Schedule& schedule = batch.plan.schedule;
  at::Tensor input;
  if (action.stage > 0) {
    auto taken = batch.inputs.extract(key);
    TESSERA_CHECK(!taken.empty(), "its input is missing");
    input = std::move(taken.mapped().tensor);
    input.set_requires_grad(batch.plan.with_backward && taken.mapped().requires_grad);
  }
  Batch::Cell cell;
  std::optional<nn::WeightGradients::Scope> divided;
  if (batch.plan.divided.count(key) != 0) {
    cell.late = c10::make_intrusive<nn::WeightGradients>();
    divided.emplace(cell.late, /*defer=*/false);
  }
  const at::Tensor output = options_.stages.at(action.stage).forward(action.micro_batch, input);
  divided.reset();
  TESSERA_CHECK(output.defined(), "the stage returned no tensor");
  note(action, output);
  const bool requires_grad = batch.plan.with_backward && output.requires_grad();
  if (action.stage + 1 == schedule.stages()) {
    if (batch.plan.with_backward && output.numel() != 1)
      throw InputError(concat("the last stage returned a tensor of sizes ", output.sizes(),
                              "; it must return a single loss element"));
    batch.losses[static_cast<std::size_t>(action.micro_batch)] = output.detach();
  } else {
    Batch::Transfer transfer{output.detach(), requires_grad};
    if (send_after(schedule, action)) {
      if (batch.rehearsal)
        batch.sent[key] = output.options();
      else if (batch.plan.with_backward)
        messages_->expect_gradient(action.stage, action.micro_batch,
                                   {output.scalar_type(), requires_grad, output.sizes().vec()});
      batch.outputs[key] = std::move(transfer);
    } else {
      batch.inputs[{action.stage + 1, action.micro_batch}] = std::move(transfer);
    }
  }
  if (!batch.plan.with_backward) return;
  if (requires_grad) cell.root = BackwardRoot(output);
  cell.input = std::move(input);
  batch.cells[key] = std::move(cell);
}

void PipelineExecutor::backward(Batch& batch, const Action& action) {
  const Key key = key_of(action);
  auto taken = batch.cells.extract(key);
  TESSERA_CHECK(!taken.empty(), "its forward has not run");
  Batch::Cell cell = std::move(taken.mapped());
  if (action.kind == Kind::weight_gradient) {
    if (cell.late) cell.late->compute();
    return;
  }
  const bool last = action.stage + 1 == batch.plan.schedule.stages();
  at::Tensor gradient;
  if (!last) {
    auto sent = batch.output_gradients.extract(key);
    TESSERA_CHECK(!sent.empty(), "the gradient of its output is missing");
    gradient = std::move(sent.mapped().tensor);
  } else if (cell.root) {
    gradient = at::ones_like(batch.losses[static_cast<std::size_t>(action.micro_batch)]);
  }
  if (cell.root) {
    std::optional<nn::WeightGradients::Scope> divided;
    if (cell.late) divided.emplace(cell.late, /*defer=*/true);
    cell.root.backward(std::exchange(gradient, {}));
  }
  if (action.kind == Kind::input_gradient) batch.cells[key].late = std::move(cell.late);  // for W
  if (action.stage == 0) return;
  Batch::Transfer transfer{{}, cell.input.requires_grad()};
  if (transfer.requires_grad) {
    transfer.tensor = std::exchange(cell.input.mutable_grad(), {});
    if (!transfer.tensor.defined()) transfer.tensor = at::zeros_like(cell.input);
    note(action, transfer.tensor);
  }
  if (send_after(batch.plan.schedule, action))
    batch.input_gradients[key] = std::move(transfer);
  else
    batch.output_gradients[{action.stage - 1, action.micro_batch}] = std::move(transfer);
}

/// One pass over the tensors that pass from stage to stage; cheap compared with the stage itself. An overflow of the
/// sum counts as an overflow of the result, which is then close to it.
void PipelineExecutor::note(const Action& action, const at::Tensor& result) {
  if (!result.is_floating_point()) return;
  const at::NoGradGuard none;
  sums_.emplace_back(action, result.detach().sum(result.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
}

std::vector<Action> PipelineExecutor::not_finite() const {
  std::vector<Action> actions;
  for (const auto& [action, sum] : sums_)
    if (!std::isfinite(sum.item<double>())) actions.push_back(action);
  return actions;
}

void PipelineExecutor::receive(Batch& batch, const Action& action) {
  auto& to = action.kind == Kind::receive_forward ? batch.inputs : batch.output_gradients;
  if (batch.rehearsal) {
    const bool forward = action.kind == Kind::receive_forward;
    const auto device = options_.group ? options_.group.device() : at::kCPU;
    const at::TensorOptions like =
        forward ? at::TensorOptions(at::kFloat).device(device) : batch.sent.at(key_of(action));
    to[key_of(action)] = {at::zeros(options_.sizes(action.micro_batch), like), /*requires_grad=*/true};
    return;
  }
  const bool waits = !messages_->arrived(action);
  if (waits) comm::heartbeat().set_phase(text_of(action));
  const std::int64_t start = monotonic_ns();
  PipelineMessages::Received received = messages_->receive(action);
  if (waits)
    measured_.push_back({action, 1e-9 * static_cast<double>(start - begin_ns_),
                         1e-9 * static_cast<double>(monotonic_ns() - begin_ns_)});
  to[key_of(action)] = {std::move(received.tensor), received.requires_grad};
}

void PipelineExecutor::send(Batch& batch, const Action& action) {
  auto taken = (action.kind == Kind::send_forward ? batch.outputs : batch.input_gradients).extract(key_of(action));
  TESSERA_CHECK(!taken.empty(), text_of(action), ": nothing to send");
  const Batch::Transfer& transfer = taken.mapped();
  if (batch.rehearsal) return;
  if (action.kind == Kind::send_backward && !transfer.requires_grad) return;  // the receiver does not expect it
  messages_->send(action, transfer.tensor, transfer.requires_grad);
}

}  // namespace tessera::parallel
