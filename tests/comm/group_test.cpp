// Group over the local backend and over test backends: validation, record, failures, adoption.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/group.h>
#include <tessera/comm/recorder.h>

#include <tests/distributed/conformance.h>

namespace {

using namespace tessera;
using namespace tessera::comm;

TEST(LocalGroup, conforms) {
  const Group group(make_local_backend("one", c10::kCPU));
  EXPECT_EQ(group.backend(), "local");
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  tessera::testing::conformance_all(group);
}

TEST(EmptyGroup, says_so_instead_of_crashing) {
  const Group group;
  EXPECT_FALSE(group);
  EXPECT_THROW(group.rank(), InputError);
  EXPECT_THROW(group.barrier().wait(), InputError);
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

// A transport that fails in wait() or when an operation starts.
class Failing final : public Backend {
 public:
  explicit Failing(bool at_start) : Backend("pair", "failing", 0, 2, c10::kCPU), at_start_(at_start) {}
  bool can_reduce(at::ScalarType) const override { return true; }
  Started broadcast(at::Tensor, int) override { return fail(); }
  Started reduce(at::Tensor, int, Reduction) override { return fail(); }
  Started all_reduce(at::Tensor, Reduction) override { return fail(); }
  Started scatter(at::Tensor, at::Tensor, int) override { return fail(); }
  Started gather(at::Tensor, at::Tensor, int) override { return fail(); }
  Started all_gather(at::Tensor, at::Tensor) override { return fail(); }
  Started reduce_scatter(at::Tensor, at::Tensor, Reduction) override { return fail(); }
  Started all_to_all(at::Tensor, at::Tensor, std::vector<std::int64_t>, std::vector<std::int64_t>) override {
    return fail();
  }
  Started send(at::Tensor, int, int) override { return fail(); }
  Started recv(at::Tensor, int, int) override { return fail(); }
  Started barrier() override { return fail(); }
  void abort(const std::string& why) override { aborts.push_back(why); }
  void close() override {}

  std::vector<std::string> aborts;

 private:
  struct Lost final : Pending {
    void wait() override { throw std::runtime_error("connection reset by 10.0.0.2"); }
    bool done() override { return true; }
  };
  Started fail() {
    if (at_start_) throw std::runtime_error("connection reset by 10.0.0.2");
    return std::make_shared<Lost>();
  }
  bool at_start_;
};

TEST(Failure, names_operation_group_tag_and_cause) {
  for (const bool at_start : {false, true}) {
    recorder().clear();
    const auto backend = std::make_shared<Failing>(at_start);
    const Group group(backend);
    const Tag tag("bucket 3");
    try {
      group.all_reduce(at::ones({5})).wait();
      FAIL() << "no error";
    } catch (const InputError&) {
      FAIL() << "a lost connection is not an input error";
    } catch (const Error& error) {
      for (const char* word : {"all_reduce #0", "group 'pair'", "5 x float32", "sum", "bucket 3",
                               "connection reset by 10.0.0.2", "rank 0"}) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " not in: " << error.what();
      }
    }
    EXPECT_TRUE(recorder().any_failed());
    EXPECT_EQ(recorder().last(1).at(0).status, Status::failed);
    // Other ranks, which may wait for this one, are informed.
    ASSERT_EQ(backend->aborts.size(), 1u);
    EXPECT_NE(backend->aborts[0].find("connection reset by 10.0.0.2"), std::string::npos) << backend->aborts[0];
    EXPECT_THROW((void)group.all_reduce(at::ones({5}).t().expand({2, 5})), InputError);  // nothing was started
    EXPECT_EQ(backend->aborts.size(), 1u);
  }
  recorder().clear();
}

TEST(Record, numbers_per_group_with_messages_apart) {
  recorder().clear();
  const Group a(std::make_shared<Failing>(false)), b(make_local_backend("solo", c10::kCPU));
  at::Tensor t = at::ones({3});
  Work unused[] = {a.barrier(), a.send(t, 1), a.all_reduce(t), a.send(t, 1), b.all_reduce(t)};
  const auto entries = recorder().last();
  ASSERT_EQ(entries.size(), 5u);
  const std::vector<std::uint64_t> expected = {0, 0, 1, 1, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(entries[i].sequence, expected[i]) << i;
  EXPECT_EQ(entries[2].payload_bytes, 12);
  EXPECT_EQ(entries[2].status, Status::started);
  EXPECT_EQ(entries[4].status, Status::done);
  EXPECT_STREQ(entries[4].group, "solo");
  recorder().clear();
}

TEST(Record, fingerprints_tell_operations_apart) {
  recorder().clear();
  const Group group(std::make_shared<Failing>(false));
  at::Tensor t = at::ones({4}), u = at::ones({5}), d = at::ones({4}, at::kDouble);
  Work unused[] = {group.all_reduce(t),
                   group.all_reduce(t),
                   group.all_reduce(u),
                   group.all_reduce(d),
                   group.all_reduce(t, Reduction::max),
                   group.broadcast(t, 0),
                   group.broadcast(t, 1)};
  const auto e = recorder().last();
  EXPECT_EQ(e[0].fingerprint, e[1].fingerprint);
  for (std::size_t i = 1; i < e.size(); ++i) {
    for (std::size_t j = i + 1; j < e.size(); ++j) EXPECT_NE(e[i].fingerprint, e[j].fingerprint) << i << " " << j;
  }
  recorder().clear();
}

TEST(Record, long_names_are_cut) {
  recorder().clear();
  const std::string longer(100, 'x');
  const Group group(make_local_backend(longer, c10::kCPU));
  const Tag tag(longer);
  group.barrier().wait();
  EXPECT_EQ(std::string(recorder().last(1).at(0).group), std::string(31, 'x'));
  EXPECT_EQ(std::string(recorder().last(1).at(0).tag), std::string(31, 'x'));
  recorder().clear();
}

// A c10d backend whose all-reduce doubles: two ranks with equal tensors.
class Doubling final : public c10d::Backend {
 public:
  Doubling() : c10d::Backend(1, 2) {}
  const std::string getBackendName() const override { return "Doubling"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    tensors[0].mul_(2);
    return c10::make_intrusive<Done>();
  }

 private:
  struct Done final : c10d::Work {
    Done() { finish(); }
  };
};

TEST(Adopt, takes_a_process_group_of_the_caller) {
  auto theirs = c10::make_intrusive<c10d::ProcessGroup>(1, 2);
  theirs->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, c10::make_intrusive<Doubling>());
  const Group group = Group::adopt(theirs, "mine");
  EXPECT_EQ(group.name(), "mine");
  EXPECT_EQ(group.backend(), "doubling");
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.size(), 2);
  EXPECT_TRUE(group.device().is_cpu());
  at::Tensor t = at::full({3}, 5), half = at::full({3}, 5, at::kBFloat16);
  group.all_reduce(t).wait();
  EXPECT_TRUE(at::equal(t, at::full({3}, 10)));
  group.all_reduce(half, Reduction::mean).wait();
  EXPECT_TRUE(at::equal(half, at::full({3}, 5, at::kBFloat16)));
  EXPECT_THROW(group.broadcast(t, 0).wait(), Error);  // unsupported operations are named errors
  EXPECT_THROW(Group::adopt(nullptr), InputError);
  EXPECT_THROW(Group::adopt(c10::make_intrusive<c10d::ProcessGroup>(0, 1)), InputError);
  recorder().clear();
}

}  // namespace
