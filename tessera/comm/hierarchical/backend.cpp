// The backend `hier`: an inner group per host (shared memory; local for a single rank) and outer groups across the
// hosts. L = ranks of a host, H = hosts, R = L H, S = bytes of the whole tensor. Bytes that each host sends over the
// network:
//
//   all_reduce      2 S (H-1)/H   reduce_scatter inside, all_reduce across on each slice, all_gather inside
//   reduce_scatter    S (H-1)/H   reduce_scatter inside, reduce_scatter across
//   all_gather        S (H-1)/H   all_gather across, all_gather inside
//   broadcast, reduce S           across once, then inside (reduce: inside first)
//
// A flat ring sends 2 S (R-1)/R between any two neighbours. The ranks with the same local rank on every host form a
// "rail", a group of H; all rails work concurrently. If hosts have different numbers of ranks, one leader per host
// communicates over the network. Scatter, gather, all_to_all and messages between hosts go directly to the destination
// rank; messages inside a host use the inner transport. bf16/fp16 are widened to fp32 once, before the first stage, and
// rounded once.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/hierarchical/topology.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/ring/queue.h>

#include <functional>
#include <numeric>

namespace tessera::comm::hier {
namespace {

void finish(const Backend::Started& started) {
  if (started) started->wait();
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}
at::ScalarType wide_type(const at::Tensor& tensor) { return is_half(tensor) ? at::kFloat : tensor.scalar_type(); }

// The stages of a mean compute its sum; store() divides.
Reduction stage_reduction(Reduction op) { return op == Reduction::mean ? Reduction::sum : op; }

// Copies a complete result in the accumulation type to the caller's tensor.
void store(const at::Tensor& target, const at::Tensor& result, Reduction op, int ranks) {
  at::Tensor values = result;
  if (op == Reduction::mean) values = values.div_(ranks);
  at::Tensor flat = target.view(-1);
  if (values.const_data_ptr() != flat.const_data_ptr()) flat.copy_(values);
}

void combine(at::Tensor& into, const at::Tensor& next, Reduction op) {
  switch (op) {
    case Reduction::sum:
    case Reduction::mean:
      into.add_(next);
      return;
    case Reduction::min:
      at::minimum_out(into, into, next);
      return;
    case Reduction::max:
      at::maximum_out(into, into, next);
      return;
    case Reduction::product:
      into.mul_(next);
      return;
  }
}

// Part i of `parts` of a flat tensor.
at::Tensor part_of(const at::Tensor& flat, std::int64_t i, std::int64_t parts) {
  const std::int64_t n = flat.numel() / parts;
  return flat.narrow(0, i * n, n);
}

bool ascending_from_zero(const std::vector<int>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) return false;
  }
  return true;
}

// Below this size, a third stage does not pay off: tensors are not sliced, and each rank sums everything.
constexpr std::int64_t small_bytes = 32 * 1024;

// Makes one end of a group. `name` is unique in this hier group and equal on all its ranks; `rank` and `size` refer to
// the new group. Collective over its ranks; never called for one rank.
using MakeBackend = std::function<std::shared_ptr<Backend>(const std::string& name, int rank, int size)>;

class HierBackend final : public Backend {
 public:
  /// `inner`, `outer`: make the groups inside a host and across hosts.
  HierBackend(const BackendRequest& request, const MakeBackend& inner, const MakeBackend& outer)
      : Backend(request.name, std::string(layout::Hier::row.name), request.rank, request.size, c10::kCPU),
        places_(request.hosts),
        host_(places_.host(rank())),
        local_(places_.local(rank())),
        local_size_(static_cast<int>(places_.members(host_).size())),
        even_(places_.even()) {
    const auto make = [](const MakeBackend& factory, const std::string& name, int rank, int size) {
      return size == 1 ? make_local_backend(name, c10::kCPU) : factory(name, rank, size);
    };
    // Same order on every rank: each call is collective over its members.
    inner_ = make(inner, concat("inside-", host_), local_, local_size_);
    inner_messages_ = make(inner, concat("messages-", host_), local_, local_size_);
    if (even_ || local_ == 0) across_ = make(outer, concat("across-", local_), host_, places_.hosts());
    flat_ = make(outer, "flat", rank(), size());
    order_ = even_ ? places_.by_rail() : places_.by_host();
    in_order_ = ascending_from_zero(order_);
  }

  bool can_reduce(at::ScalarType dtype) const override { return flat_->can_reduce(dtype) && inner_->can_reduce(dtype); }

  Started broadcast(at::Tensor tensor, int root) override {
    const bool sends = rank() == bridge_rank(places_.host(root), root);
    return start(sends ? bytes_across(Op::broadcast, tensor) : 0, [this, tensor, root] {
      const int from = places_.local(root), bridge = bridge_place(root);
      // If another rank of the root's host bridges to the other hosts, broadcast inside that host first.
      const bool root_host = host_ == places_.host(root);
      const bool inside_first = root_host && bridge != from;
      if (inside_first) finish(inner_->broadcast(tensor, from));
      if (local_ == bridge && places_.hosts() > 1) finish(across_->broadcast(tensor, places_.host(root)));
      if (!inside_first) finish(inner_->broadcast(tensor, root_host ? from : bridge));
    });
  }

  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    const bool is_bridge = local_ == bridge_place(root);
    const bool sends = is_bridge && host_ != places_.host(root);
    return start(sends ? bytes_across(Op::reduce, tensor) : 0, [this, tensor, root, op, is_bridge] {
      const Reduction stage = stage_reduction(op);
      at::Tensor work = tensor.view(-1).to(wide_type(tensor), /*non_blocking=*/false, /*copy=*/true);  // [n]
      finish(inner_->reduce(work, bridge_place(root), stage));
      if (is_bridge && places_.hosts() > 1) finish(across_->reduce(work, places_.host(root), stage));
      if (host_ == places_.host(root) && bridge_place(root) != places_.local(root))
        finish(inner_->broadcast(work, bridge_place(root)));
      if (rank() == root) store(tensor, work, op, size());
    });
  }

  Started all_reduce(at::Tensor tensor, Reduction op) override {
    if (!even_) return all_reduce_through_leaders(std::move(tensor), op);
    const std::int64_t n = tensor.numel();
    const std::int64_t sliced = is_small(tensor) ? 0 : n / local_size_ * local_size_, rest = n - sliced;
    const std::int64_t width = static_cast<std::int64_t>(c10::elementSize(wide_type(tensor)));
    const std::int64_t moved = wire_bytes(Op::all_reduce, (sliced / local_size_ + rest) * width, places_.hosts());
    return start(moved, [this, tensor, op, sliced, rest] {
      const Reduction stage = stage_reduction(op);
      const at::Tensor work = tensor.view(-1).to(wide_type(tensor));  // [n]
      if (sliced > 0) {
        const at::Tensor main = work.narrow(0, 0, sliced), slice = part_of(main, local_, local_size_);
        const at::Tensor sum = at::empty_like(slice);
        finish(inner_->reduce_scatter(sum, main, stage));
        across_all_reduce(sum, stage);
        finish(inner_->all_gather(main, sum));
      }
      if (rest > 0) {
        const at::Tensor tail = work.narrow(0, sliced, rest);
        finish(inner_->all_reduce(tail, stage));
        across_all_reduce(tail, stage);
      }
      store(tensor, work, op, size());
    });
  }

  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    if (!even_) return reduce_scatter_through_leaders(std::move(output), std::move(input), op);
    const std::int64_t width = static_cast<std::int64_t>(c10::elementSize(wide_type(output)));
    const std::int64_t moved =
        wire_bytes(Op::reduce_scatter, output.numel() * places_.hosts() * width, places_.hosts());
    return start(moved, [this, output, input, op] {
      const Reduction stage = stage_reduction(op);
      const at::Tensor grouped = permuted(input, wide_type(input));  // [L, H, n]
      const at::Tensor rail = at::empty({output.numel() * places_.hosts()}, grouped.options());
      finish(inner_->reduce_scatter(rail, grouped, stage));
      const at::Tensor mine =
          wide_type(output) == output.scalar_type() ? output.view(-1) : at::empty({output.numel()}, grouped.options());
      if (places_.hosts() > 1) {
        finish(across_->reduce_scatter(mine, rail, stage));
      } else {
        mine.copy_(rail);
      }
      store(output, mine, op, size());
    });
  }

  Started all_gather(at::Tensor output, at::Tensor input) override {
    if (!even_) return all_gather_through_leaders(std::move(output), std::move(input));
    const std::int64_t moved =
        wire_bytes(Op::all_gather, static_cast<std::int64_t>(input.nbytes()) * places_.hosts(), places_.hosts());
    return start(moved, [this, output, input] {
      const std::int64_t n = input.numel();
      const at::Tensor target = in_order_ ? output.view(-1) : at::empty({n * size()}, output.options());  // [L, H, n]
      const at::Tensor rail = part_of(target, local_, local_size_);                                       // [H, n]
      if (places_.hosts() > 1) {
        finish(across_->all_gather(rail, input.view(-1)));
      } else if (rail.const_data_ptr() != input.const_data_ptr()) {
        rail.copy_(input.view(-1));
      }
      finish(inner_->all_gather(target, rail));
      if (!in_order_) restore_order(output, target);
    });
  }

  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    const std::int64_t moved = rank() == root ? parts_abroad() * static_cast<std::int64_t>(output.nbytes()) : 0;
    return start(moved, [this, output, input, root] { finish(flat_->scatter(output, input, root)); });
  }

  Started gather(at::Tensor output, at::Tensor input, int root) override {
    const std::int64_t moved = is_here(root) ? 0 : static_cast<std::int64_t>(input.nbytes());
    return start(moved, [this, output, input, root] { finish(flat_->gather(output, input, root)); });
  }

  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    std::int64_t moved = 0;
    for (int r = 0; r < size(); ++r) {
      if (!is_here(r))
        moved += input_splits[static_cast<std::size_t>(r)] * static_cast<std::int64_t>(input.element_size());
    }
    return start(moved, [this, output, input, output_splits, input_splits] {
      finish(flat_->all_to_all(output, input, output_splits, input_splits));
    });
  }

  // Messages do not wait for collectives.
  Started send(at::Tensor tensor, int destination, int tag) override {
    open();
    report_moved(is_here(destination) ? 0 : static_cast<std::int64_t>(tensor.nbytes()));
    if (is_here(destination)) return inner_messages_->send(tensor, places_.local(destination), tag);
    return flat_->send(tensor, destination, tag);
  }
  Started recv(at::Tensor tensor, int source, int tag) override {
    open();
    report_moved(0);
    if (is_here(source)) return inner_messages_->recv(tensor, places_.local(source), tag);
    return flat_->recv(tensor, source, tag);
  }

  Started barrier() override {
    return start(0, [this] {
      finish(inner_->barrier());
      if (places_.hosts() == 1) return;
      if (across_) finish(across_->barrier());
      if (!even_) finish(inner_->barrier());
    });
  }

  void abort(const std::string& why) override {
    for (const auto& backend : {inner_, inner_messages_, across_, flat_}) {
      if (backend) backend->abort(why);
    }
  }

  void close() override {
    queue_.reset();
    for (auto* backend : {&inner_, &inner_messages_, &across_, &flat_}) {
      if (*backend) (*backend)->close();
      backend->reset();
    }
  }

 private:
  void open() const {
    if (!flat_) throw Error("the group was closed by shutdown()");
  }

  // `moved`: bytes that this rank sends to other hosts.
  Started start(std::int64_t moved, std::function<void()> stages) {
    open();
    report_moved(moved);
    if (!queue_) queue_ = std::make_unique<ring::Queue>();
    return queue_->push([stages = std::move(stages)] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const std::int64_t reported = take_moved();
      stages();
      take_moved();  // discards the stages' own reports: `moved` covers them
      if (reported >= 0) report_moved(reported);
    });
  }

  bool is_here(int r) const { return places_.host(r) == host_; }
  std::int64_t parts_abroad() const { return size() - local_size_; }
  bool is_small(const at::Tensor& tensor) const { return static_cast<std::int64_t>(tensor.nbytes()) < small_bytes; }
  // Local rank, on every host, of the ranks that bridge to the root's host: the root's rail, or the leaders.
  int bridge_place(int root) const { return even_ ? places_.local(root) : 0; }
  int bridge_rank(int host, int root) const {
    return places_.members(host)[static_cast<std::size_t>(bridge_place(root))];
  }
  std::int64_t bytes_across(Op op, const at::Tensor& tensor) const {
    const std::int64_t width = op == Op::reduce ? static_cast<std::int64_t>(c10::elementSize(wide_type(tensor)))
                                                : static_cast<std::int64_t>(tensor.element_size());
    return wire_bytes(op, tensor.numel() * width, places_.hosts());
  }
  void across_all_reduce(const at::Tensor& tensor, Reduction op) {
    if (places_.hosts() > 1) finish(across_->all_reduce(tensor, op));
  }

  // The parts of all ranks reordered to order_, in `dtype`; `whole` itself if nothing changes.
  at::Tensor permuted(const at::Tensor& whole, at::ScalarType dtype) const {
    const at::Tensor flat = whole.view(-1);
    if (in_order_) return flat.to(dtype);
    at::Tensor result = at::empty({flat.numel()}, flat.options().dtype(dtype));
    for (int i = 0; i < size(); ++i)
      part_of(result, i, size()).copy_(part_of(flat, order_[static_cast<std::size_t>(i)], size()));
    return result;
  }
  void restore_order(const at::Tensor& output, const at::Tensor& grouped) const {
    const at::Tensor flat = output.view(-1);
    for (int i = 0; i < size(); ++i)
      part_of(flat, order_[static_cast<std::size_t>(i)], size()).copy_(part_of(grouped, i, size()));
  }

  // --- hosts with different numbers of ranks ---

  Started all_reduce_through_leaders(at::Tensor tensor, Reduction op) {
    const std::int64_t bytes = tensor.numel() * static_cast<std::int64_t>(c10::elementSize(wide_type(tensor)));
    return start(local_ == 0 ? wire_bytes(Op::all_reduce, bytes, places_.hosts()) : 0, [this, tensor, op] {
      const Reduction stage = stage_reduction(op);
      const at::Tensor work = tensor.view(-1).to(wide_type(tensor));
      finish(inner_->reduce(work, 0, stage));
      if (local_ == 0) across_all_reduce(work, stage);
      finish(inner_->broadcast(work, 0));
      store(tensor, work, op, size());
    });
  }

  // Elements per host of a tensor with n elements per rank.
  std::vector<std::int64_t> host_splits(std::int64_t n) const {
    std::vector<std::int64_t> splits;
    for (int h = 0; h < places_.hosts(); ++h)
      splits.push_back(static_cast<std::int64_t>(places_.members(h).size()) * n);
    return splits;
  }

  Started reduce_scatter_through_leaders(at::Tensor output, at::Tensor input, Reduction op) {
    const std::int64_t n = output.numel(), width = static_cast<std::int64_t>(c10::elementSize(wide_type(output)));
    return start(local_ == 0 ? parts_abroad() * n * width : 0, [this, output, input, op, n] {
      const Reduction stage = stage_reduction(op);
      at::Tensor grouped = permuted(input, wide_type(input));  // [R, n] by host
      if (grouped.const_data_ptr() == input.const_data_ptr()) grouped = grouped.clone();
      finish(inner_->reduce(grouped, 0, stage));
      const std::int64_t here = local_size_ * n;
      at::Tensor sum;  // [L, n]: the parts of this host's ranks, summed over all hosts in order
      if (local_ == 0 && places_.hosts() > 1) {
        const at::Tensor parts = at::empty({here * places_.hosts()}, grouped.options());
        finish(across_->all_to_all(parts, grouped,
                                   std::vector<std::int64_t>(static_cast<std::size_t>(places_.hosts()), here),
                                   host_splits(n)));
        sum = parts.narrow(0, 0, here);
        for (int h = 1; h < places_.hosts(); ++h) combine(sum, part_of(parts, h, places_.hosts()), stage);
      } else if (local_ == 0) {
        sum = grouped;
      }
      const at::Tensor mine = at::empty({n}, grouped.options());
      finish(inner_->scatter(mine, sum, 0));
      store(output, mine, op, size());
    });
  }

  Started all_gather_through_leaders(at::Tensor output, at::Tensor input) {
    const std::int64_t bytes = static_cast<std::int64_t>(input.nbytes()) * local_size_ * (places_.hosts() - 1);
    return start(local_ == 0 ? bytes : 0, [this, output, input] {
      const std::int64_t n = input.numel(), here = local_size_ * n;
      const at::Tensor grouped = at::empty({n * size()}, output.options());  // [R, n] by host
      at::Tensor mine = local_ == 0 ? at::empty({here}, output.options()) : at::Tensor();
      finish(inner_->gather(mine, input.view(-1), 0));
      if (local_ == 0 && places_.hosts() > 1) {
        const auto hosts = static_cast<std::size_t>(places_.hosts());
        finish(across_->all_to_all(grouped, mine.repeat({places_.hosts()}), host_splits(n),
                                   std::vector<std::int64_t>(hosts, here)));
      } else if (local_ == 0) {
        grouped.copy_(mine);
      }
      finish(inner_->broadcast(grouped, 0));
      restore_order(output, grouped);
    });
  }

  Topology places_;
  int host_, local_, local_size_;
  bool even_;
  std::vector<int> order_;  // order of the ranks' parts between the stages
  bool in_order_ = true;
  // across_: this rank's rail; leaders only if hosts differ in size.
  std::shared_ptr<Backend> inner_, inner_messages_, across_, flat_;
  std::unique_ptr<ring::Queue> queue_;
};

}  // namespace

}  // namespace tessera::comm::hier

namespace tessera {

std::shared_ptr<comm::Backend> layout::Hier::make(const comm::BackendRequest& request) {
  const auto over = [&request](auto factory) -> comm::hier::MakeBackend {
    return [&request, factory](const std::string& part, int rank, int size) {
      comm::BackendRequest own = request;
      own.name = concat(request.name, "/", part);
      own.rank = rank;
      own.size = size;
      own.store = c10::make_intrusive<c10d::PrefixStore>(part, request.store);
      return factory(own);
    };
  };
  return std::make_shared<comm::hier::HierBackend>(request, over(&Shm::make), over(&Gloo::make));
}

}  // namespace tessera
