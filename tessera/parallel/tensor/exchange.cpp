#include <tessera/parallel/tensor/exchange.h>

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t tokens = 1;  ///< the token dimension of [B, T, ...]

at::Tensor summed(const at::Tensor& x, const comm::Group& group) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum).wait();
  return sum;
}

/// [B, T / n, ...] -> [B, T, ...].
at::Tensor gathered_tokens(const at::Tensor& x, const comm::Group& group) {
  const at::Tensor own = x.contiguous();
  auto sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), group.size());  // [n, B, T / n, ...]
  const at::Tensor all = at::empty(sizes, own.options());
  group.all_gather(all, own).wait();
  auto whole = own.sizes().vec();
  whole[tokens] *= group.size();
  return all.transpose(0, 1).reshape(whole);
}

/// [B, T, ...] -> [n, B, T / n, ...], contiguous.
at::Tensor tokens_by_rank(const at::Tensor& x, const comm::Group& group) {
  const std::int64_t n = group.size();
  if (x.dim() < 2 || x.size(tokens) % n != 0)
    throw InputError(
        concat("sequence parallelism: activations ", c10::str(x.sizes()), " over ", n,
               " ranks: they must be [B, T, ...] with T a multiple of the number of ranks; pad the sequence or remove "
               "sequence_parallel"));
  auto sizes = x.sizes().vec();
  sizes[tokens] /= n;
  sizes.insert(sizes.begin() + tokens, n);
  return x.reshape(sizes).transpose(0, 1).contiguous();
}

/// Memory for one rank's part of [n, ...].
at::Tensor one_of(const at::Tensor& by_rank) { return at::empty(by_rank.sizes().slice(1), by_rank.options()); }

/// The sum of all ranks' x, restricted to this rank's tokens.
at::Tensor summed_own_tokens(const at::Tensor& x, const comm::Group& group) {
  const at::Tensor by_rank = tokens_by_rank(x, group), own = one_of(by_rank);
  group.reduce_scatter(own, by_rank).wait();
  return own;
}

at::Tensor narrowed_tokens(const at::Tensor& x, const comm::Group& group) {
  const std::int64_t n = group.size();
  if (x.dim() < 2 || x.size(tokens) % n != 0) (void)tokens_by_rank(x, group);  // throws the error
  const std::int64_t own = x.size(tokens) / n;
  return x.narrow(tokens, group.rank() * own, own).contiguous();
}

/// The forward and backward steps, with their name in the comm table.
struct Exchange : torch::CustomClassHolder {
  using Step = std::function<at::Tensor(const at::Tensor&)>;
  Exchange(const char* name_, Step forward_, Step backward_)
      : name(name_), forward(std::move(forward_)), backward(std::move(backward_)) {}
  const char* name;
  Step forward, backward;
};

struct Exchanged : torch::autograd::Function<Exchanged> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, c10::intrusive_ptr<Exchange> exchange) {
    const comm::Tag tag(exchange->name);
    at::Tensor y = std::exchange(exchange->forward, nullptr)(x);  // called once; moved out to release its captures
    ctx->saved_data["exchange"] = c10::IValue::make_capsule(std::move(exchange));
    return y.is_same(x) ? x.view_as(x) : y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    forget_entered();  // the pass has ended
    const auto held = ctx->saved_data["exchange"].toCapsule();
    const Exchange& exchange = static_cast<const Exchange&>(*held);
    const comm::Tag tag(exchange.name);
    return {exchange.backward(gradients[0]), at::Tensor()};
  }
};

at::Tensor exchanged(const char* name, const at::Tensor& x, Exchange::Step forward, Exchange::Step backward) {
  return Exchanged::apply(x, c10::make_intrusive<Exchange>(name, std::move(forward), std::move(backward)));
}

at::Tensor as_it_is(const at::Tensor& x) { return x; }

/// A gradient whose sum is in flight.
struct Underway : torch::CustomClassHolder {
  comm::Work work;
};

/// Identity. Backward waits for the gradient that it receives.
struct Awaited : torch::autograd::Function<Awaited> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const c10::intrusive_ptr<Underway>& underway) {
    ctx->saved_data["underway"] = c10::IValue::make_capsule(underway);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto held = ctx->saved_data["underway"].toCapsule();
    std::exchange(static_cast<Underway&>(*held).work, {}).wait();
    return {gradients[0], at::Tensor()};
  }
};

/// The last input that entered, and the result: q, k and v receive the same tensor, one after another.
struct LastEntered {
  c10::weak_intrusive_ptr<c10::TensorImpl> x{c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  std::int64_t version = 0;
  bool differentiated = false;
  const std::string* group = nullptr;  ///< address of the group's name, which identifies the group
  Between between = Between::whole;
  Entered entered;
};
LastEntered& last_entered() {
  static thread_local LastEntered last;
  return last;
}

}  // namespace

Entered copy_to_tensor_parallel(const at::Tensor& x, const comm::Group& group, Between between) {
  if (x.is_inference())  // inference tensors have no version and need no gradient
    return {between == Between::whole ? x : gathered_tokens(x, group), {}};
  LastEntered& last = last_entered();
  const bool differentiated = at::GradMode::is_enabled() && x.requires_grad();
  if (last.entered.x.defined() && !last.x.expired() && last.x._unsafe_get_target() == x.unsafeGetTensorImpl() &&
      last.version == x._version() && last.differentiated == differentiated && last.group == &group.name() &&
      last.between == between)
    return last.entered;
  // Backward runs in reverse order: the last node created runs first and starts the sum; nodes numbered in between then
  // run; the first node created waits.
  auto underway = c10::make_intrusive<Underway>();
  Entered entered;
  const at::Tensor given = differentiated ? Awaited::apply(x, underway) : x;
  if (differentiated) entered.meanwhile = at::sequence_number::get_and_increment();
  const auto start = [group, between, underway](const at::Tensor& g) {
    if (between == Between::whole) {
      const at::Tensor sum = g.clone(at::MemoryFormat::Contiguous);
      underway->work = group.all_reduce(sum);
      return sum;
    }
    const at::Tensor by_rank = tokens_by_rank(g, group), own = one_of(by_rank);
    underway->work = group.reduce_scatter(own, by_rank);
    return own;
  };
  const auto whole = [group, between](const at::Tensor& own) {
    return between == Between::whole ? own : gathered_tokens(own, group);
  };
  entered.x = exchanged("input of columns", given, whole, start);
  last = {c10::weak_intrusive_ptr<c10::TensorImpl>(x.getIntrusivePtr()),
          x._version(),
          differentiated,
          &group.name(),
          between,
          entered};
  return entered;
}

void forget_entered() { last_entered() = {}; }

at::Tensor reduce_from_tensor_parallel(const at::Tensor& y, const comm::Group& group, Between between) {
  forget_entered();
  if (between == Between::whole)
    return exchanged("output of rows", y, [group](const at::Tensor& part) { return summed(part, group); }, as_it_is);
  return exchanged(
      "output of rows", y, [group](const at::Tensor& part) { return summed_own_tokens(part, group); },
      [group](const at::Tensor& g) { return gathered_tokens(g, group); });
}

at::Tensor reduce_from_tensor_parallel_in_parts(const std::function<at::Tensor(const PartComputed& computed)>& product,
                                                const comm::Group& group, Between between) {
  forget_entered();
  const comm::Tag tag("output of rows");
  std::vector<comm::Work> works;
  std::vector<at::Tensor> own;  // this rank's tokens of each part
  const at::Tensor y = product([&](const at::Tensor& part) {
    if (between == Between::whole) {
      works.push_back(group.all_reduce(part));
    } else {
      const at::Tensor by_rank = tokens_by_rank(part, group);
      own.push_back(one_of(by_rank));
      works.push_back(group.reduce_scatter(own.back(), by_rank));
    }
  });
  const auto arrived = [&](const at::Tensor& sums) {
    for (comm::Work& work : works) work.wait();
    // The same memory, but not a view: the caller may change it in place (torch::nn::Linear adds its bias this way).
    return between == Between::whole ? sums.variable_data() : at::cat(own, 0);
  };
  if (between == Between::whole) return exchanged("output of rows", y, arrived, as_it_is);
  return exchanged("output of rows", y, arrived, [group](const at::Tensor& g) { return gathered_tokens(g, group); });
}

at::Tensor take_part(const at::Tensor& whole, int dim, const Ranges& part) {
  if (part.empty()) return whole.narrow(dim, 0, 0);
  std::vector<at::Tensor> pieces;
  for (const auto& [begin, end] : part) pieces.push_back(whole.narrow(dim, begin, end - begin));
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, dim);
}

at::Tensor gather_parts(const at::Tensor& own, int dim, std::span<const Ranges> parts, const comm::Group& group) {
  const auto extent = [](const Ranges& ranges) {
    std::int64_t sum = 0;
    for (const auto& [begin, end] : ranges) sum += end - begin;
    return sum;
  };
  std::int64_t widest = 0, all = 0;
  for (const Ranges& ranges : parts) {
    widest = std::max(widest, extent(ranges));
    for (const auto& [begin, end] : ranges) all = std::max(all, end);
  }
  // Messages must have equal size: shorter parts are padded.
  auto sizes = own.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = widest;
  at::Tensor message = own.detach().contiguous();
  if (own.size(dim) != widest) {
    message = at::zeros(sizes, own.options());
    message.narrow(dim, 0, own.size(dim)).copy_(own);
  }
  auto stacked = sizes;
  stacked.insert(stacked.begin(), group.size());
  const at::Tensor received = at::empty(stacked, own.options());
  group.all_gather(received, message).wait();
  sizes[static_cast<std::size_t>(dim)] = all;
  at::Tensor whole = at::empty(sizes, own.options());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    std::int64_t place = 0;
    for (const auto& [begin, end] : parts[r]) {
      whole.narrow(dim, begin, end - begin)
          .copy_(received.select(0, static_cast<std::int64_t>(r)).narrow(dim, place, end - begin));
      place += end - begin;
    }
  }
  return whole;
}

at::Tensor gather_from_tensor_parallel(const at::Tensor& y, std::span<const Ranges> parts, const comm::Group& group) {
  const int last = static_cast<int>(y.dim()) - 1;
  const std::vector<Ranges> all(parts.begin(), parts.end());
  return exchanged(
      "gathered columns", y, [=](const at::Tensor& own) { return gather_parts(own, last, all, group); },
      [=, own = parts[static_cast<std::size_t>(group.rank())]](const at::Tensor& g) {
        return take_part(g, last, own).contiguous();
      });
}

at::Tensor scatter_to_tensor_parallel(const at::Tensor& x, const comm::Group& group) {
  const int last = static_cast<int>(x.dim()) - 1;
  const std::int64_t all = x.size(last), n = group.size();
  if (all % n != 0)
    throw InputError(concat("tensor parallelism: rowwise_split_input of ", all, " columns over ", n,
                            " ranks, but the number of columns is not a multiple of the number of ranks"));
  std::vector<Ranges> parts;
  for (std::int64_t r = 0; r < n; ++r) parts.push_back({{r * all / n, (r + 1) * all / n}});
  const Ranges own = parts[static_cast<std::size_t>(group.rank())];
  return exchanged(
      "split columns", x, [=](const at::Tensor& whole) { return take_part(whole, last, own).contiguous(); },
      [=](const at::Tensor& g) { return gather_parts(g, last, parts, group); });
}

namespace {

/// Row ranges by rank; sizes may differ.
std::vector<Ranges> shares_of(std::int64_t rows, const comm::Group& group) {
  const std::int64_t n = group.size();
  std::vector<Ranges> shares;
  for (std::int64_t r = 0; r < n; ++r) shares.push_back({{r * rows / n, (r + 1) * rows / n}});
  return shares;
}

}  // namespace

at::Tensor own_rows(const at::Tensor& x, const comm::Group& group) {
  const std::vector<Ranges> shares = shares_of(x.size(0), group);
  const Ranges own = shares[static_cast<std::size_t>(group.rank())];
  return exchanged(
      "own rows", x, [=](const at::Tensor& whole) { return take_part(whole, 0, own).contiguous(); },
      [=](const at::Tensor& g) { return gather_parts(g, 0, shares, group); });
}

at::Tensor all_rows(const at::Tensor& own_part, std::int64_t rows, const comm::Group& group) {
  const std::vector<Ranges> shares = shares_of(rows, group);
  const Ranges own = shares[static_cast<std::size_t>(group.rank())];
  return exchanged(
      "all rows", own_part, [=](const at::Tensor& part) { return gather_parts(part, 0, shares, group); },
      [=](const at::Tensor& g) { return take_part(g, 0, own).contiguous(); });
}

at::Tensor own_tokens(const at::Tensor& x, const comm::Group& group) {
  return exchanged(
      "own tokens", x, [group](const at::Tensor& all) { return narrowed_tokens(all, group); },
      [group](const at::Tensor& g) { return gathered_tokens(g, group); });
}

at::Tensor all_tokens(const at::Tensor& x, const comm::Group& group) {
  return exchanged(
      "all tokens", x, [group](const at::Tensor& own) { return gathered_tokens(own, group); },
      [group](const at::Tensor& g) { return narrowed_tokens(g, group); });
}

}  // namespace tessera::parallel
