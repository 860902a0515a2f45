#pragma once
/// \file
/// The contract of every communication backend, independent of its transport. Each function is called by all ranks of
/// `group` and checks with gtest expectations; tensors are created on the group's device. A new backend calls
/// conformance_all().

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/group.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace tessera::testing {

using comm::Group;
using comm::Reduction;
using comm::Work;

inline constexpr Reduction reductions[] = {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max,
                                           Reduction::product};

/// [n] small integers -2..2 that differ by rank and position: exact in every dtype, including sums and products over 8
/// ranks.
inline at::Tensor sample(const Group& group, at::ScalarType dtype, std::int64_t n, int rank, int salt = 0) {
  const auto i = at::arange(n, at::kLong);
  at::Tensor values = (i * 7 + rank * 3 + salt * 11 + at::floor_divide(i, 13)).remainder(5) - 2;
  if (dtype == at::kByte || dtype == at::kBool) values = values.abs();
  return values.to(dtype).to(group.device());
}

/// The expected result of a reduction over all ranks of sample(), computed in fp64 and rounded once.
inline at::Tensor expected_reduction(const Group& group, at::ScalarType dtype, std::int64_t n, Reduction op,
                                     int salt = 0) {
  at::Tensor result = sample(group, dtype, n, 0, salt).to(at::kDouble);
  for (int rank = 1; rank < group.size(); ++rank) {
    const at::Tensor next = sample(group, dtype, n, rank, salt).to(at::kDouble);
    switch (op) {
      case Reduction::sum:
      case Reduction::mean:
        result += next;
        break;
      case Reduction::min:
        result = at::minimum(result, next);
        break;
      case Reduction::max:
        result = at::maximum(result, next);
        break;
      case Reduction::product:
        result *= next;
        break;
    }
  }
  if (op != Reduction::mean) return result.to(dtype);
  // The mean is formed in the accumulation type: fp32 for half types.
  return dtype == at::kDouble ? result / group.size() : (result.to(at::kFloat) / group.size()).to(dtype);
}

inline void expect_equal(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(at::equal(got, expected)) << what << ": got " << got.flatten().slice(0, 0, 8) << " expected "
                                        << expected.flatten().slice(0, 0, 8) << " (first elements of " << got.numel()
                                        << ")";
}

inline std::string label(const Group& group, const char* op, at::ScalarType dtype, std::int64_t n) {
  return concat(op, " on ", group.name(), " (", group.backend(), ", rank ", group.rank(), "/", group.size(), "), ",
                c10::toString(dtype), " x ", n);
}

inline void check_reductions(const Group& group, at::ScalarType dtype, std::int64_t n) {
  const int rank = group.rank(), size = group.size();
  for (const Reduction op : reductions) {
    if (op == Reduction::mean && !at::isFloatingType(dtype)) continue;
    const std::string what = label(group, comm::reduction_name(op), dtype, n);
    const at::Tensor expected = expected_reduction(group, dtype, n, op);

    at::Tensor t = sample(group, dtype, n, rank);
    group.all_reduce(t, op).wait();
    expect_equal(t, expected, what + " all_reduce");

    for (int root = 0; root < size; ++root) {
      t = sample(group, dtype, n, rank);
      group.reduce(t, root, op).wait();
      expect_equal(t, rank == root ? expected : sample(group, dtype, n, rank), concat(what, " reduce to ", root));
    }

    const at::Tensor input = sample(group, dtype, n * size, rank), before = input.clone();
    t = at::full({n}, 1, input.options());
    group.reduce_scatter(t, input, op).wait();
    const at::Tensor whole = expected_reduction(group, dtype, n * size, op);
    expect_equal(t, whole.narrow(0, rank * n, n), what + " reduce_scatter");
    expect_equal(input, before, what + " reduce_scatter's input");
  }
}

inline void check_movement(const Group& group, at::ScalarType dtype, std::int64_t n) {
  const int rank = group.rank(), size = group.size();
  std::vector<at::Tensor> parts;
  for (int r = 0; r < size; ++r) parts.push_back(sample(group, dtype, n, r));
  const at::Tensor all = at::cat(parts), mine = parts[static_cast<std::size_t>(rank)];

  for (int root = 0; root < size; ++root) {
    at::Tensor t = mine.clone();
    group.broadcast(t, root).wait();
    expect_equal(t, parts[static_cast<std::size_t>(root)], label(group, "broadcast", dtype, n));

    t = at::zeros_like(mine);
    group.scatter(t, rank == root ? all.clone() : at::Tensor(), root).wait();
    expect_equal(t, mine, label(group, "scatter", dtype, n));

    t = rank == root ? at::zeros_like(all) : at::Tensor();
    group.gather(t, mine, root).wait();
    if (rank == root) expect_equal(t, all, label(group, "gather", dtype, n));
  }

  at::Tensor t = at::zeros_like(all);
  group.all_gather(t, mine).wait();
  expect_equal(t, all, label(group, "all_gather", dtype, n));
  t.zero_();
  t.narrow(0, rank * n, n).copy_(mine);
  group.all_gather(t, t.narrow(0, rank * n, n)).wait();
  expect_equal(t, all, label(group, "all_gather from its own slice", dtype, n));

  // Part p of rank r goes to rank p: sample(salt = r) cut by peer.
  t = at::zeros_like(all);
  group.all_to_all(t, sample(group, dtype, n * size, 0, rank)).wait();
  std::vector<at::Tensor> from;
  for (int r = 0; r < size; ++r) from.push_back(sample(group, dtype, n * size, 0, r).narrow(0, rank * n, n));
  expect_equal(t, at::cat(from), label(group, "all_to_all", dtype, n));
}

/// Uneven all_to_all of rows of 3: rank r sends r + p rows to rank p (0 to itself from rank 0), so sizes 0 occur too.
inline void check_uneven_all_to_all(const Group& group, at::ScalarType dtype) {
  const int rank = group.rank(), size = group.size();
  const auto splits_of = [&](int r) {
    std::vector<std::int64_t> splits;
    for (int p = 0; p < size; ++p) splits.push_back(r + p);
    return splits;
  };
  const auto rows_of = [&](int r) {
    const auto splits = splits_of(r);
    return std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  };
  const auto input_of = [&](int r) { return sample(group, dtype, rows_of(r) * 3, r).view({-1, 3}); };
  std::vector<at::Tensor> expected;
  for (int r = 0; r < size; ++r) {
    const auto splits = splits_of(r);
    const std::int64_t begin = std::accumulate(splits.begin(), splits.begin() + rank, std::int64_t{0});
    expected.push_back(input_of(r).narrow(0, begin, r + rank));
  }
  const at::Tensor input = input_of(rank);
  at::Tensor output = at::zeros_like(input);  // r sends as much to p as p sends to r
  group.all_to_all(output, input, splits_of(rank), splits_of(rank)).wait();
  expect_equal(output, at::cat(expected), label(group, "uneven all_to_all", dtype, input.numel()));
}

/// A ring of messages whose tags are received in reverse order.
inline void check_messages(const Group& group, at::ScalarType dtype, std::int64_t n) {
  if (group.size() == 1) return;
  const int rank = group.rank(), next = (rank + 1) % group.size(), previous = (rank + group.size() - 1) % group.size();
  const at::Tensor first = sample(group, dtype, n, rank, 1), second = sample(group, dtype, n, rank, 2);
  at::Tensor got_first = at::zeros_like(first), got_second = at::zeros_like(second);
  Work sends[] = {group.send(first, next, 1), group.send(second, next, 2)};
  group.recv(got_second, previous, 2).wait();
  group.recv(got_first, previous, 1).wait();
  for (Work& work : sends) work.wait();
  expect_equal(got_first, sample(group, dtype, n, previous, 1), label(group, "message with tag 1", dtype, n));
  expect_equal(got_second, sample(group, dtype, n, previous, 2), label(group, "message with tag 2", dtype, n));
}

/// Many works in flight, waited for in reverse order, twice.
inline void check_overlap(const Group& group) {
  const int size = group.size();
  std::vector<at::Tensor> sums, gathered, inputs;
  std::vector<Work> works;
  for (int i = 0; i < 8; ++i) {
    const auto dtype = i % 2 == 0 ? at::kFloat : at::kBFloat16;
    sums.push_back(sample(group, dtype, 1000 * i + 1, group.rank(), i));
    inputs.push_back(sample(group, dtype, 100 + i, group.rank(), i));
    gathered.push_back(at::zeros({(100 + i) * size}, inputs.back().options()));
    works.push_back(group.all_reduce(sums.back()));
    works.push_back(group.all_gather(gathered.back(), inputs.back()));
  }
  works.push_back(group.barrier());
  for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  for (Work& work : works) {
    EXPECT_TRUE(work.done());
    work.wait();
  }
  for (int i = 0; i < 8; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto dtype = sums[at].scalar_type();
    expect_equal(sums[at], expected_reduction(group, dtype, 1000 * i + 1, Reduction::sum, i), "overlapped all_reduce");
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size; ++r) parts.push_back(sample(group, dtype, 100 + i, r, i));
    expect_equal(gathered[at], at::cat(parts), "overlapped all_gather");
  }
}

/// done() is false while a peer is missing and becomes true without wait().
inline void check_done(const Group& group) {
  if (group.size() == 1) return;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const auto becomes_done = [&](const Work& work) {
    for (int i = 0; i < 500 && !work.done(); ++i) pause();
    return work.done();
  };
  group.barrier().wait();
  at::Tensor t = sample(group, at::kFloat, 100, group.rank()), message = at::zeros_like(t);
  if (group.rank() == 0) {
    Work sum = group.all_reduce(t), recv = group.recv(message, 1, 7);
    EXPECT_FALSE(sum.done());
    EXPECT_FALSE(recv.done());
    at::Tensor go = at::ones({1}, t.options());
    for (int r = 1; r < group.size(); ++r) group.send(go, r, 8).wait();
    EXPECT_TRUE(becomes_done(recv));
    EXPECT_TRUE(becomes_done(sum));
    recv.wait();
    sum.wait();
    expect_equal(message, at::ones_like(message), "message after done()");
  } else {
    at::Tensor go = at::zeros({1}, t.options());
    group.recv(go, 0, 8).wait();  // this rank starts nothing before rank 0 has checked done()
    Work sum = group.all_reduce(t);
    if (group.rank() == 1) group.send(at::ones_like(message), 0, 7).wait();
    EXPECT_TRUE(becomes_done(sum));
    sum.wait();
  }
  expect_equal(t, expected_reduction(group, at::kFloat, 100, Reduction::sum), "all_reduce after done()");
}

/// 256 + 1 + 1: each addition is lost in bf16, none in fp32.
inline void check_half_accumulates_in_float(const Group& group) {
  at::Tensor t = at::full({5}, group.rank() == 0 ? 256 : 1, at::TensorOptions(group.device()).dtype(at::kBFloat16));
  group.all_reduce(t).wait();
  const at::Tensor expected =
      at::full({5}, 256 + group.size() - 1, at::TensorOptions(group.device()).dtype(at::kFloat));
  expect_equal(t, expected.to(at::kBFloat16), "bf16 sum");
}

/// Collectives ignore autograd: a parameter that requires grad can be broadcast, and keeps its version and its grad_fn.
inline void check_parameters(const Group& group) {
  at::Tensor weight = sample(group, at::kFloat, 12, group.rank()).view({3, 4}).requires_grad_();
  const auto version = weight._version();
  group.broadcast(weight, 0).wait();
  group.all_reduce(weight, Reduction::mean).wait();
  EXPECT_TRUE(weight.is_leaf());
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(weight._version(), version);
  expect_equal(weight.detach().flatten(), sample(group, at::kFloat, 12, 0), "parameter");
  at::Tensor whole = at::zeros({12 * group.size()}, weight.options()).requires_grad_();
  const auto whole_version = whole._version();
  group.all_gather(whole, weight).wait();
  EXPECT_TRUE(whole.is_leaf());
  EXPECT_EQ(whole._version(), whole_version);
  expect_equal(whole.detach().narrow(0, 0, 12), weight.detach().flatten(), "gathered parameter");
}

/// Invalid arguments are detected before anything is sent: the group keeps working.
inline void check_bad_arguments(const Group& group) {
  const int size = group.size();
  const auto options = at::TensorOptions(group.device()).dtype(at::kFloat);
  const at::Tensor ok = at::ones({4}, options), whole = at::ones({4 * size}, options);
  const auto rejected = [&](const char* op, const char* word, const std::function<Work()>& call) {
    try {
      call().wait();
      ADD_FAILURE() << op << " accepted " << word;
    } catch (const InputError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(op), std::string::npos) << text;
      EXPECT_NE(text.find(group.name()), std::string::npos) << text;
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  };
  rejected("all_reduce", "contiguous", [&] { return group.all_reduce(at::ones({4, 4}, options).t()); });
  rejected("all_reduce", "undefined", [&] { return group.all_reduce(at::Tensor()); });
  rejected("all_reduce", "bool", [&] { return group.all_reduce(at::ones({4}, options.dtype(at::kBool))); });
  rejected("all_reduce", "mean",
           [&] { return group.all_reduce(at::ones({4}, options.dtype(at::kLong)), Reduction::mean); });
  rejected("all_reduce", "meta", [&] { return group.all_reduce(at::ones({4}, options.device(at::kMeta))); });
  rejected("broadcast", "out of range", [&] { return group.broadcast(ok, size); });
  rejected("broadcast", "out of range", [&] { return group.broadcast(ok, -1); });
  rejected("all_gather", "elements", [&] { return group.all_gather(at::ones({4 * size + 1}, options), ok); });
  rejected("all_gather", "int64", [&] { return group.all_gather(whole, at::ones({4}, options.dtype(at::kLong))); });
  rejected("reduce_scatter", "elements", [&] { return group.reduce_scatter(ok, at::ones({4 * size + 1}, options)); });
  rejected("all_to_all", "splits",
           [&] { return group.all_to_all(whole, whole, {1}, std::vector<std::int64_t>(9, 1)); });
  rejected("all_to_all", "negative", [&] {
    std::vector<std::int64_t> splits(static_cast<std::size_t>(size), 4);
    splits[0] = -4;
    return group.all_to_all(whole, whole, splits, splits);
  });
  rejected("send", "itself", [&] { return group.send(ok, group.rank()); });
  rejected("recv", "out of range", [&] { return group.recv(ok, size); });
  if (size > 1) rejected("send", "negative", [&] { return group.send(ok, (group.rank() + 1) % size, -1); });
  group.barrier().wait();
}

/// 16 MB fp32 tensors: a repeating ramp 0..8190 plus the rank. Few temporaries, because their page faults would cost
/// more than the collectives.
inline void check_large(const Group& group) {
  const int size = group.size();
  const std::int64_t part = (4 << 20) / size, n = part * size;
  const auto options = at::TensorOptions(group.device()).dtype(at::kFloat);
  const at::Tensor ramp = at::arange(n, options).remainder_(8191);
  const at::Tensor sum = (ramp * size).add_(size * (size - 1) / 2);
  at::Tensor t = ramp + group.rank();
  at::Tensor mine = at::zeros({part}, options);
  group.reduce_scatter(mine, t).wait();
  group.all_reduce(t).wait();
  expect_equal(t, sum, "16 MB all_reduce");
  t.zero_();
  group.all_gather(t, mine).wait();
  expect_equal(t, sum, "16 MB reduce_scatter + all_gather");
  if (group.rank() != size - 1) t.zero_();
  group.broadcast(t, size - 1).wait();
  expect_equal(t, sum, "16 MB broadcast");
}

inline void conformance_all(const Group& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
    for (const std::int64_t n : {0, 1, 1031}) {
      check_reductions(group, dtype, n);
      check_movement(group, dtype, n);
      check_messages(group, dtype, n);
    }
    check_uneven_all_to_all(group, dtype);
  }
  for (const at::ScalarType dtype : {at::kByte, at::kChar, at::kInt, at::kDouble}) check_reductions(group, dtype, 17);
  for (const at::ScalarType dtype : {at::kByte, at::kBool, at::kShort, at::kDouble}) {
    check_movement(group, dtype, 17);
    check_messages(group, dtype, 17);
  }
  check_half_accumulates_in_float(group);
  check_overlap(group);
  check_done(group);
  check_parameters(group);
  check_bad_arguments(group);
}

}  // namespace tessera::testing
