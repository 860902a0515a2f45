#include <tessera/parallel/expert/dispatch.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/moe/permute.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Counts = std::vector<std::int64_t>;

constexpr const char *there = "tokens to experts", *home = "results of experts";  // comm tags, also for their gradients

std::int64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

/// A few consecutive experts of every rank, whose rows are sent and computed together.
struct Chunk {
  std::int64_t begin = 0;  ///< index of its first row among the rows that this rank sends
  Counts sent, received;   ///< rows to and from each rank
  /// int64 [received]: received rows are ordered by rank; `order` sorts them by expert and `inverse` back. Undefined:
  /// they are already sorted.
  at::Tensor order, inverse;
  at::Tensor counts;  ///< int64 on the CPU: rows of each expert here, [experts] or, with sources, [ranks, experts]
};

/// A layer's rows in flight. Chunks are sent one after another, and each is waited for when it is needed, so that one
/// is computed while others are in flight. Backward does the same in reverse: autograd runs the last computed chunk
/// first, so its gradients are sent first and are processed while the others are in flight.
struct Journey : torch::CustomClassHolder {
  comm::Group group;
  std::vector<Chunk> chunks;
  std::vector<comm::Work> under_way;  ///< by chunk
  std::vector<at::Tensor> gradients;  ///< by chunk: gradients of its results, received here
  std::vector<std::int64_t> sizes;    ///< shape of the tensor of all rows that this rank sends
  at::Tensor gathered;                ///< [sizes], filled by chunks: results; in backward, gradients of rows

  /// Waits for the rows of chunk j and releases the rows that were sent.
  void wait(std::size_t j) { std::exchange(under_way[j], {}).wait(); }
  at::Tensor place_of(std::size_t j, const at::TensorOptions& options) {
    if (!gathered.defined()) gathered = at::empty(sizes, options);
    return gathered.narrow(0, chunks[j].begin, sum_of(chunks[j].sent));
  }
  /// Sends rows [sent] of chunk j; returns a new tensor [received] for the incoming rows.
  at::Tensor send(std::size_t j, const at::Tensor& rows, const char* what) {
    const comm::Tag tag(what);
    const Chunk& chunk = chunks[j];
    const at::Tensor came = at::empty({sum_of(chunk.received), rows.size(1)}, rows.options());
    under_way[j] = group.all_to_all(came, rows, chunk.received, chunk.sent);
    return came;
  }
  /// Sends rows [received] of chunk j back to their place in `gathered`.
  void send_back(std::size_t j, const at::Tensor& rows, const char* what) {
    const comm::Tag tag(what);
    const Chunk& chunk = chunks[j];
    under_way[j] = group.all_to_all(place_of(j, rows.options()), rows.contiguous(), chunk.sent, chunk.received);
  }
  at::Tensor all_gathered() {
    for (std::size_t j = 0; j < chunks.size(); ++j) wait(j);
    return std::exchange(gathered, {});
  }
};
using JourneyPtr = c10::intrusive_ptr<Journey>;

void remember(AutogradContext* ctx, const JourneyPtr& journey, std::size_t j = 0) {
  ctx->saved_data["journey"] = c10::IValue::make_capsule(journey);
  ctx->saved_data["chunk"] = static_cast<std::int64_t>(j);
}
JourneyPtr journey_of(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<Journey>(ctx->saved_data["journey"].toCapsule());
}
std::size_t chunk_of(AutogradContext* ctx) { return static_cast<std::size_t>(ctx->saved_data["chunk"].toInt()); }

/// rows -> the incoming rows of each chunk, valid after Arrival.
struct Departure : torch::autograd::Function<Departure> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& rows, const JourneyPtr& journey) {
    remember(ctx, journey);
    variable_list coming;
    for (std::size_t j = 0; j < journey->chunks.size(); ++j)
      coming.push_back(
          journey->send(j, rows.narrow(0, journey->chunks[j].begin, sum_of(journey->chunks[j].sent)), there));
    return coming;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    return {journey_of(ctx)->all_gathered(), {}};
  }
};

struct Arrival : torch::autograd::Function<Arrival> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& coming, const JourneyPtr& journey, std::size_t j) {
    remember(ctx, journey, j);
    journey->wait(j);
    return coming;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    journey_of(ctx)->send_back(chunk_of(ctx), gradients[0], there);
    // A placeholder without memory for the gradient of rows on other ranks.
    return {at::empty({1, 1}, gradients[0].options()).expand_as(gradients[0]), {}, {}};
  }
};

/// Results of a chunk -> an empty placeholder, used until Homecoming.
struct Return : torch::autograd::Function<Return> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& results, const JourneyPtr& journey, std::size_t j) {
    remember(ctx, journey, j);
    journey->send_back(j, results, home);
    return at::empty({0}, results.options());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    const JourneyPtr journey = journey_of(ctx);
    const std::size_t j = chunk_of(ctx);
    journey->wait(j);
    return {std::exchange(journey->gradients[j], {}), {}, {}};
  }
};

struct Homecoming : torch::autograd::Function<Homecoming> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList, const JourneyPtr& journey) {
    remember(ctx, journey);
    return journey->all_gathered();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const JourneyPtr journey = journey_of(ctx);
    const at::Tensor rows = gradients[0].contiguous();
    for (std::size_t j = journey->chunks.size(); j-- > 0;)
      journey->gradients[j] =
          journey->send(j, rows.narrow(0, journey->chunks[j].begin, sum_of(journey->chunks[j].sent)), home);
    variable_list stand_ins(journey->chunks.size() + 1);
    for (std::size_t j = 0; j < journey->chunks.size(); ++j) stand_ins[j] = at::empty({0}, rows.options());
    return stand_ins;
  }
};

/// Permutes rows [R, C]: row i of the result is row order[i] of the input.
struct Reordered : torch::autograd::Function<Reordered> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& order,
                            const at::Tensor& inverse) {
    ctx->save_for_backward({inverse});
    return rows.index_select(0, order);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {gradients[0].index_select(0, ctx->get_saved_variables()[0]), {}, {}};
  }
};

/// Received rows are ordered by rank, then by expert; the products need them ordered by expert. `counts` [ranks,
/// experts]: rows of each rank for each expert.
void sort_by_expert(Chunk& chunk, const at::Tensor& counts, c10::Device device) {
  const std::int64_t ranks = counts.size(0), experts = counts.size(1), rows = sum_of(chunk.received);
  const std::int64_t* const count = counts.const_data_ptr<std::int64_t>();
  Counts begins{0};  // first row of each rank and expert
  for (std::int64_t i = 0; i + 1 < ranks * experts; ++i) begins.push_back(begins.back() + count[i]);
  const at::Tensor order = at::empty({rows}, at::kLong), inverse = at::empty({rows}, at::kLong);
  std::int64_t *const source = order.mutable_data_ptr<std::int64_t>(), *const place =
                                                                           inverse.mutable_data_ptr<std::int64_t>();
  std::int64_t next = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = begins[static_cast<std::size_t>(rank * experts + expert)];
      for (std::int64_t i = 0; i < count[rank * experts + expert]; ++i, ++next) {
        source[next] = begin + i;
        place[begin + i] = next;
      }
    }
  chunk.order = order.to(device);
  chunk.inverse = inverse.to(device);
}

/// The number of chunks for `held` experts per rank: few enough that messages stay long, and all of equal size.
std::int64_t chunks_of(std::int64_t held) {
  constexpr std::int64_t most = 4;
  std::int64_t chunks = std::min(held, most);
  while (held % chunks != 0) --chunks;
  return chunks;
}

/// Numbers of experts in the order in which their rows are sent: by chunk, then by rank. [E + 1], indexed by expert +
/// 1; entry 0 is -1.
at::Tensor numbers_by_chunk(std::int64_t ranks, std::int64_t held, std::int64_t chunks) {
  const std::int64_t each = held / chunks;
  const at::Tensor numbers = at::empty({ranks * held + 1}, at::kLong);
  std::int64_t* const number = numbers.mutable_data_ptr<std::int64_t>();
  number[0] = -1;
  for (std::int64_t e = 0; e < ranks * held; ++e) {
    const std::int64_t rank = e / held, chunk = e % held / each;
    number[e + 1] = (chunk * ranks + rank) * each + e % each;
  }
  return numbers;
}

/// counts_to, counts_from [chunks, ranks, experts of a chunk]: rows for each expert there, and from each rank.
JourneyPtr journey_for(const comm::Group& group, const at::Tensor& counts_to, const at::Tensor& counts_from,
                       const at::Tensor& rows, bool per_source) {
  auto journey = c10::make_intrusive<Journey>();
  journey->group = group;
  journey->sizes = rows.sizes().vec();
  const auto chunks = static_cast<std::size_t>(counts_to.size(0));
  journey->under_way.resize(chunks);
  journey->gradients.resize(chunks);
  std::int64_t begin = 0;
  for (std::size_t j = 0; j < chunks; ++j) {
    const auto numbers = [&](const at::Tensor& counts) {
      const at::Tensor sums = counts[static_cast<std::int64_t>(j)].sum(1);
      return Counts(sums.const_data_ptr<std::int64_t>(), sums.const_data_ptr<std::int64_t>() + sums.numel());
    };
    Chunk& chunk = journey->chunks.emplace_back();
    chunk.begin = begin;
    chunk.sent = numbers(counts_to);
    chunk.received = numbers(counts_from);
    const at::Tensor from = counts_from[static_cast<std::int64_t>(j)].contiguous();
    chunk.counts = per_source ? from : from.sum(0);
    if (!per_source && from.size(1) > 1) sort_by_expert(chunk, from, rows.device());
    begin += sum_of(chunk.sent);
  }
  return journey;
}

/// `count` of the local experts, starting at local index `begin`.
nn::ExpertWeights some_of(const nn::ExpertWeights& w, std::int64_t begin, std::int64_t count) {
  nn::ExpertWeights some;
  some.first = w.first + begin;
  some.total = w.total;
  some.activation = w.activation;
  for (const auto& [from, to] : {std::pair{&w.gate, &some.gate}, {&w.up, &some.up}, {&w.down, &some.down}})
    if (!from->empty()) to->assign(from->begin() + begin, from->begin() + begin + count);
  return some;
}

}  // namespace

at::Tensor dispatched_experts(const comm::Group& group, const at::Tensor& x, const at::Tensor& ids,
                              const at::Tensor& slot_weights, const nn::ExpertWeights& w,
                              const DispatchOptions& options, const nn::Meanwhile& meanwhile) {
  const std::int64_t held = w.held(), ranks = group.size(), chunks = options.per_source ? 1 : chunks_of(held),
                     each = held / chunks;
  const at::Tensor numbered =
      chunks == 1
          ? ids
          : numbers_by_chunk(ranks, held, chunks).to(ids.device()).index_select(0, ids.flatten() + 1).view_as(ids);
  const nn::Permutation permutation = nn::permutation_of(numbered, held * ranks, options.padded_to);
  const at::Tensor counts_to = nn::host_counts(permutation).view({chunks, ranks, each});
  const at::Tensor to_ranks = counts_to.transpose(0, 1).contiguous().to(group.device()),
                   from_ranks = at::empty_like(to_ranks);
  comm::Work counts_travel;
  {
    const comm::Tag tag("tokens of each expert");
    counts_travel = group.all_to_all(from_ranks.flatten(), to_ranks.flatten());
  }
  const at::Tensor rows = nn::permute(x, permutation);
  counts_travel.wait();
  const JourneyPtr journey =
      journey_for(group, counts_to, from_ranks.cpu().transpose(0, 1), rows, static_cast<bool>(options.per_source));
  variable_list coming = Departure::apply(rows, journey);
  if (meanwhile) meanwhile();
  variable_list stand_ins;
  for (std::size_t j = 0; j < coming.size(); ++j) {
    const Chunk& chunk = journey->chunks[j];
    at::Tensor y = Arrival::apply(std::exchange(coming[j], {}), journey, j);
    if (chunk.order.defined()) y = Reordered::apply(y, chunk.order, chunk.inverse);
    y = nn::experts_of_rows(y, chunk.counts, some_of(w, static_cast<std::int64_t>(j) * each, each), options.per_source);
    if (chunk.order.defined()) y = Reordered::apply(y, chunk.inverse, chunk.order);
    stand_ins.push_back(Return::apply(y, journey, j));
  }
  return nn::unpermute(Homecoming::apply(at::TensorList(stand_ins), journey), permutation, slot_weights);
}

}  // namespace tessera::parallel
