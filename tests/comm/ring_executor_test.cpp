// The executor on real memory: ranks are threads, and the network delivers a message only after both sides have posted
// it, with a delay.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <tessera/base/error.h>
#include <tessera/wire/ring/executor.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::wire::ring;
using kernels::Fold;
using kernels::Number;

// One thread moves messages, picking a pair of ranks at random.
class Network {
 public:
  explicit Network(std::uint64_t seed) : random_(seed), mover_([this] { move(); }) {}
  ~Network() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    mover_.join();
  }

  struct Posted {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool done = false;
    std::string error;
  };
  using Handle = std::shared_ptr<Posted>;

  Handle post(bool is_send, int from, int to, const void* data, std::size_t bytes) {
    auto handle = std::make_shared<Posted>(Posted{data, bytes, false, ""});
    {
      const std::lock_guard lock(mutex_);
      auto& channel = channels_[{from, to}];
      (is_send ? channel.sends : channel.recvs).push_back(handle);
      if (is_send) sent_bytes_[from] += static_cast<std::int64_t>(bytes);
    }
    changed_.notify_all();
    return handle;
  }
  void wait(const Handle& handle) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, tessera::testing::patience(std::chrono::milliseconds(20'000)),
                           [&] { return handle->done || broken_; }))
      throw Error("deadlock: a message never came");
    if (broken_) throw Error("the link broke");
    if (!handle->error.empty()) throw Error(handle->error);
  }
  std::int64_t sent_bytes(int rank) { return sent_bytes_[rank]; }
  // After `count` messages the network fails for every rank.
  void fail_after(int count) { left_ = count; }

 private:
  struct Channel {
    std::deque<Handle> sends, recvs;
  };
  void move() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      std::vector<Channel*> ready;
      for (auto& [ends, channel] : channels_) {
        if (!channel.sends.empty() && !channel.recvs.empty()) ready.push_back(&channel);
      }
      if (ready.empty()) {
        changed_.wait(lock);
        continue;
      }
      Channel& channel = *ready[random_() % ready.size()];
      const Handle send = channel.sends.front(), recv = channel.recvs.front();
      channel.sends.pop_front();
      channel.recvs.pop_front();
      if (left_-- == 0) {
        broken_ = true;
        changed_.notify_all();
        return;
      }
      if (send->bytes != recv->bytes) {
        send->error = recv->error = concat("sent ", send->bytes, " bytes, expected ", recv->bytes);
      } else {
        std::memcpy(const_cast<void*>(recv->data), send->data, send->bytes);
      }
      send->done = recv->done = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Channel> channels_;
  std::map<int, std::int64_t> sent_bytes_;
  std::mt19937_64 random_;
  int left_ = -1;
  bool broken_ = false, stop_ = false;
  std::thread mover_;
};

class NetworkLink final : public Link {
 public:
  NetworkLink(Network& network, int rank) : network_(network), rank_(rank) {}
  std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) override {
    return std::make_unique<Waiting>(network_, network_.post(true, rank_, peer, data, bytes));
  }
  std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) override {
    return std::make_unique<Waiting>(network_, network_.post(false, peer, rank_, data, bytes));
  }

 private:
  struct Waiting final : Message {
    Waiting(Network& network, Network::Handle handle) : network(network), handle(std::move(handle)) {}
    void wait() override { network.wait(handle); }
    Network& network;
    Network::Handle handle;
  };
  Network& network_;
  int rank_;
};

struct Case {
  Job job;  // rank, input, output are filled in per rank
  std::uint64_t seed = 0;
};

// Runs `body(rank)` in one thread per rank; returns the exceptions' texts.
std::vector<std::string> on_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// A small integer for rank r and element i: exact in every type, in sums and products.
int value(int r, std::int64_t i) { return static_cast<int>((i * 7 + r * 3 + i / 13) % 3) + 1; }

double expected(Fold fold, int size, std::int64_t i) {
  double result = value(0, i);
  for (int r = 1; r < size; ++r) {
    const double next = value(r, i);
    if (fold == Fold::min) result = std::min(result, next);
    if (fold == Fold::max) result = std::max(result, next);
    if (fold == Fold::product) result *= next;
    if (fold == Fold::sum || fold == Fold::mean) result += next;
  }
  return result;
}

template <class T>
T rounded(Fold fold, int size, std::int64_t i) {
  const double sum = expected(fold, size, i);
  if (fold != Fold::mean) return static_cast<T>(static_cast<float>(sum));
  if constexpr (std::is_same_v<T, double>) return sum / size;
  return static_cast<T>(static_cast<float>(sum) / static_cast<float>(size));
}

template <class T>
void check(Case c) {
  const int size = c.job.size;
  const std::int64_t n = c.job.n;
  const bool all_reduce = c.job.collective == Collective::all_reduce;
  const bool all_gather = c.job.collective == Collective::all_gather;
  const std::int64_t in = all_reduce || all_gather ? n : n * size, out = all_gather ? n * size : n;
  std::vector<std::vector<T>> inputs, outputs;
  for (int r = 0; r < size; ++r) {
    std::vector<T> mine(static_cast<std::size_t>(in));
    for (std::int64_t i = 0; i < in; ++i) mine[static_cast<std::size_t>(i)] = static_cast<T>(value(r, i));
    outputs.push_back(all_reduce ? mine : std::vector<T>(static_cast<std::size_t>(out), T(9)));
    inputs.push_back(std::move(mine));
  }
  const auto originals = inputs;
  std::int64_t most_sent = 0;
  {
    Network network(c.seed);
    const auto errors = on_threads(size, [&](int r) {
      Job job = c.job;
      const auto at = static_cast<std::size_t>(r);
      job.rank = r;
      job.output = outputs[at].data();
      job.input = all_reduce ? outputs[at].data() : inputs[at].data();
      if (all_gather) {
        job.number = Number::uint8;
        job.n = n * static_cast<std::int64_t>(sizeof(T));
      }
      NetworkLink link(network, r);
      Scratch scratch;
      run(job, link, scratch);
    });
    for (const std::string& error : errors) RC_ASSERT(error == "");
    for (int r = 0; r < size; ++r) most_sent = std::max(most_sent, network.sent_bytes(r));
  }
  RC_ASSERT(inputs == originals);
  for (int r = 0; r < size; ++r) {
    for (std::int64_t i = 0; i < out; ++i) {
      const T got = outputs[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)];
      if (all_gather) {
        RC_ASSERT(got == static_cast<T>(value(static_cast<int>(i / n), i % n)));
      } else {
        RC_ASSERT(got == rounded<T>(c.job.fold, size, all_reduce ? i : r * n + i));
      }
    }
  }
  // A reduce-scatter moves (R-1)/R of the input, less than an all-reduce of a copy would.
  if (c.job.algorithm == Algorithm::direct && !all_reduce) {
    const std::int64_t part = n * static_cast<std::int64_t>(sizeof(T));
    RC_ASSERT(most_sent == part * (size - 1));
  }
}

Case random_case() {
  Case c;
  c.job.algorithm =
      *rc::gen::element(Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling, Algorithm::doubling);
  c.job.collective = *rc::gen::element(Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather);
  RC_PRE(implements(c.job.algorithm, c.job.collective));
  c.job.size = *rc::gen::inRange(2, 10);
  c.job.n = *rc::gen::oneOf(rc::gen::inRange(1, 40), rc::gen::inRange(1, 1500));
  c.job.fold = *rc::gen::element(Fold::sum, Fold::mean, Fold::min, Fold::max, Fold::product);
  c.job.chunk_bytes = *rc::gen::element(64, 100, 400, 1 << 20);
  c.job.window = *rc::gen::inRange(1, 7);
  c.seed = *rc::gen::arbitrary<std::uint64_t>();
  return c;
}

template <class T>
void property(Number number) {
  Case c = random_case();
  c.job.number = number;
  if (!std::is_floating_point_v<T> && number != Number::bf16 && number != Number::fp16)
    RC_PRE(c.job.fold != Fold::mean);
  check<T>(c);
}

RC_GTEST_PROP(RingExecutor, fp32, ()) { property<float>(Number::fp32); }
RC_GTEST_PROP(RingExecutor, fp64, ()) { property<double>(Number::fp64); }
RC_GTEST_PROP(RingExecutor, bf16, ()) { property<c10::BFloat16>(Number::bf16); }
RC_GTEST_PROP(RingExecutor, fp16, ()) { property<c10::Half>(Number::fp16); }
RC_GTEST_PROP(RingExecutor, int64, ()) { property<std::int64_t>(Number::int64); }

// Random floats: every rank of an all-reduce gets the same bits, also in a second run.
RC_GTEST_PROP(RingExecutor, all_ranks_get_the_same_bits_every_time, ()) {
  Case c = random_case();
  RC_PRE(c.job.collective == Collective::all_reduce);
  std::mt19937 random(static_cast<unsigned>(c.seed));
  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(c.job.size));
  for (auto& input : inputs) {
    for (std::int64_t i = 0; i < c.job.n; ++i) input.push_back(std::normal_distribution<float>()(random));
  }
  std::vector<std::vector<float>> results;
  for (const std::uint64_t seed : {c.seed, c.seed + 1}) {
    auto tensors = inputs;
    Network network(seed);
    const auto errors = on_threads(c.job.size, [&](int r) {
      Job job = c.job;
      job.rank = r;
      job.input = job.output = tensors[static_cast<std::size_t>(r)].data();
      NetworkLink link(network, r);
      Scratch scratch;
      run(job, link, scratch);
    });
    for (const std::string& error : errors) RC_ASSERT(error == "");
    results.insert(results.end(), tensors.begin(), tensors.end());
  }
  for (const auto& result : results) RC_ASSERT(result == results.front());
}

// 256 + 1 + 1 + ...: in bf16 each addition would be lost.
TEST(RingExecutor, bf16_is_combined_in_fp32) {
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling, Algorithm::doubling}) {
    for (const int size : {3, 4, 7}) {
      std::vector<std::vector<c10::BFloat16>> tensors(static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r)
        tensors[static_cast<std::size_t>(r)].assign(100, c10::BFloat16(r == 0 ? 256.0F : 1.0F));
      Network network(1);
      const auto errors = on_threads(size, [&](int r) {
        Job job;
        job.algorithm = algorithm;
        job.rank = r;
        job.size = size;
        job.number = Number::bf16;
        job.n = 100;
        job.input = job.output = tensors[static_cast<std::size_t>(r)].data();
        NetworkLink link(network, r);
        Scratch scratch;
        run(job, link, scratch);
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      const c10::BFloat16 sum(static_cast<float>(256 + size - 1));
      for (const auto& tensor : tensors) {
        for (const c10::BFloat16 x : tensor) EXPECT_EQ(x, sum) << algorithm_name(algorithm) << " of " << size;
      }
    }
  }
}

// A link that fails midway gives every rank an error; none waits forever.
TEST(RingExecutor, a_broken_link_ends_everyone) {
  for (const int after : {0, 5, 23}) {
    Network network(7);
    network.fail_after(after);
    std::vector<std::vector<float>> tensors(3, std::vector<float>(3000, 1.0F));
    const auto errors = on_threads(3, [&](int r) {
      Job job;
      job.rank = r;
      job.size = 3;
      job.n = 3000;
      job.chunk_bytes = 256;
      job.input = job.output = tensors[static_cast<std::size_t>(r)].data();
      NetworkLink link(network, r);
      Scratch scratch;
      run(job, link, scratch);
    });
    int told = 0;
    for (const std::string& error : errors) {
      told += error == "the link broke";
      EXPECT_TRUE(error.empty() || error == "the link broke") << error;
    }
    EXPECT_GE(told, 1);
  }
}

}  // namespace
