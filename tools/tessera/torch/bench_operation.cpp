#include "bench_operation.h"

#include <ATen/ATen.h>

#include <array>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/launch/watch/record.h>

namespace tessera::tool {
namespace {

constexpr std::int64_t period = 3;

/// The value of rank r at index i before the operation: small enough for sums in every type.
std::int64_t value(std::int64_t rank, std::int64_t i) { return (rank + i) % period; }

/// Fills a tensor by repeating the values of indices 0, 1, 2.
template <class ValueAt>
at::Tensor pattern(const at::Tensor& like, std::int64_t elements, const ValueAt& value_at) {
  std::array<std::int64_t, period> values{};
  for (std::int64_t i = 0; i < period; ++i) values[static_cast<std::size_t>(i)] = value_at(i);
  const at::Tensor one = at::tensor(at::ArrayRef<std::int64_t>(values.data(), values.size())).to(like.options());
  return one.repeat({(elements + period - 1) / period}).narrow(0, 0, elements);
}

/// The recorded operation whose bus bytes are counted in the same way.
launch::Op recorded(const std::string& op) {
  if (op == "send_recv") return launch::Op::send;
  for (int i = 0; i < launch::op_count; ++i)
    if (op == launch::op_name(static_cast<launch::Op>(i))) return static_cast<launch::Op>(i);
  throw Error("bench comm has no operation " + op);
}

at::Tensor make(const comm::Group& group, std::int64_t elements, at::ScalarType dtype, bool shared) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(group.device());
  return shared ? comm::zeros_shared(group, {elements}, options) : at::zeros({elements}, options);
}

}  // namespace

BenchOperation::BenchOperation(std::string op, const comm::Group& group, std::int64_t bytes, at::ScalarType dtype,
                               bool shared)
    : op_(std::move(op)), rank_(group.rank()), size_(group.size()) {
  if (op_ == "barrier") return;
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t step = element_bytes * size_;
  const bool in_parts =
      op_ == "all_gather" || op_ == "reduce_scatter" || op_ == "all_to_all" || op_ == "scatter" || op_ == "gather";
  const std::int64_t unit = in_parts ? step : element_bytes;
  bytes_ = (bytes + unit - 1) / unit * unit;
  elements_ = bytes_ / element_bytes;
  wire_ = launch::wire_bytes(recorded(op_), bytes_, size_);
  const auto whole = [&] { return make(group, elements_, dtype, shared); };
  const auto own_part = [&] { return make(group, part(), dtype, shared); };
  if (op_ == "all_gather" || op_ == "gather") {
    input_ = own_part();
    if (op_ == "all_gather" || rank_ == 0) output_ = whole();
  } else if (op_ == "reduce_scatter" || op_ == "scatter") {
    output_ = own_part();
    if (op_ == "reduce_scatter" || rank_ == 0) input_ = whole();
  } else {
    output_ = whole();
    if (op_ == "all_to_all" || op_ == "send_recv") input_ = whole();
  }
}

std::int64_t BenchOperation::part() const { return elements_ / size_; }

void BenchOperation::start_and_wait(const comm::Group& group) {
  if (op_ == "all_reduce") return group.all_reduce(output_).wait();
  if (op_ == "reduce") return group.reduce(output_, 0).wait();
  if (op_ == "broadcast") return group.broadcast(output_, 0).wait();
  if (op_ == "all_gather") return group.all_gather(output_, input_).wait();
  if (op_ == "reduce_scatter") return group.reduce_scatter(output_, input_).wait();
  if (op_ == "all_to_all") return group.all_to_all(output_, input_).wait();
  if (op_ == "scatter") return group.scatter(output_, input_, 0).wait();
  if (op_ == "gather") return group.gather(output_, input_, 0).wait();
  if (op_ == "barrier") return group.barrier().wait();
  TESSERA_CHECK(op_ == "send_recv", "bench comm has no operation ", op_);
  if (size_ == 1) {
    output_.copy_(input_);
    return;
  }
  comm::Work receiving = group.recv(output_, (rank_ + size_ - 1) % size_);
  group.send(input_, (rank_ + 1) % size_).wait();
  receiving.wait();
}

void BenchOperation::run(const comm::Group& group) {
  start_and_wait(group);
  const at::Tensor& any = output_.defined() ? output_ : input_;
  if (any.defined() && !any.is_cpu()) any.view(-1)[0].item();  // wait() only orders the stream, so synchronize
}

void BenchOperation::check(const comm::Group& group) {
  if (op_ == "barrier") return run(group);
  const auto own = [&](std::int64_t i) { return value(rank_, i); };
  const auto sum = [&](std::int64_t i) {
    std::int64_t total = 0;
    for (int r = 0; r < size_; ++r) total += value(r, i);
    return total;
  };
  at::Tensor& source = input_.defined() ? input_ : output_;  // in a gather or scatter, the other ranks have only a part
  if (input_.defined() || op_ == "all_reduce" || op_ == "reduce" || op_ == "broadcast")
    source.copy_(pattern(source, source.numel(), own));
  run(group);

  const std::int64_t n = part();
  at::Tensor expected;
  if (op_ == "all_reduce" || (op_ == "reduce" && rank_ == 0)) {
    expected = pattern(output_, elements_, sum);
  } else if (op_ == "broadcast") {
    expected = pattern(output_, elements_, [&](std::int64_t i) { return value(0, i); });
  } else if (op_ == "send_recv") {
    expected = pattern(output_, elements_, [&](std::int64_t i) { return value((rank_ + size_ - 1) % size_, i); });
  } else if (op_ == "reduce_scatter") {
    expected = pattern(output_, n, [&](std::int64_t i) { return sum(rank_ * n + i); });
  } else if (op_ == "scatter") {
    expected = pattern(output_, n, [&](std::int64_t i) { return value(0, rank_ * n + i); });
  } else if (output_.defined() && op_ != "reduce") {
    std::vector<at::Tensor> parts;
    const std::int64_t begin = op_ == "all_to_all" ? rank_ * n : 0;
    for (int r = 0; r < size_; ++r)
      parts.push_back(pattern(output_, n, [&](std::int64_t i) { return value(r, begin + i); }));
    expected = at::cat(parts);
  }
  if (expected.defined() && !at::equal(output_, expected)) {
    const at::Tensor wrong = output_.ne(expected).nonzero().view(-1);
    const auto place = wrong[0].item<std::int64_t>();
    throw Error(concat(op_, " of ", bytes_, " bytes over ", size_, " ranks (", group.backend(), ") is wrong on rank ",
                       rank_, ": ", wrong.numel(), " of ", output_.numel(), " elements, the first at ", place, " is ",
                       output_[place].item<double>(), ", not ", expected[place].item<double>()));
  }
  if (input_.defined()) input_.zero_();
  if (output_.defined()) output_.zero_();
}

}  // namespace tessera::tool
