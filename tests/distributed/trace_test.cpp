// The merged timeline of several ranks is valid JSON in Chrome's trace format.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/value.h>
#include <tessera/train/reporting/trace.h>
#include <tests/distributed/harness.h>

#include <map>
#include <set>

namespace {

using namespace tessera;
using train::Trace;

TEST(Trace, of_two_ranks_is_whole_and_bounded) {
  const auto outcomes = tessera::testing::run_ranks(2, [](comm::World& world) {
    const std::int64_t zero = train::common_zero(world.group(), true);
    Trace trace;
    for (int step = 0; step < 3; ++step) {
      trace.phase("forward");
      trace.phase("backward");
      const comm::Tag tag("bucket \"0\"");
      comm::Work a = world.group().all_reduce(at::ones({100000}));
      comm::Work b = world.group().all_reduce(at::ones({10}));  // overlaps with a
      a.wait();
      b.wait();
      trace.phase("");
    }
    trace.collect();
    trace.collect();  // collects nothing twice
    const std::string file = train::merge_traces(trace, zero, world.group());
    EXPECT_EQ(file.empty(), world.rank() != 0);
    if (world.rank() == 0) tessera::testing::post(file);
  });
  ASSERT_EQ(outcomes[0].posted.size(), 1u);
  const Value file = parse_json(outcomes[0].posted[0], "trace.json");
  EXPECT_EQ(file.at("otherData").at("dropped_events").as_int(), 0);
  std::map<std::string, int> count;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<double, double>>> spans;
  std::set<std::string> tracks;
  for (const Value& event : file.at("traceEvents").items()) {
    const std::string ph = event.at("ph").as_string();
    EXPECT_TRUE(ph == "X" || ph == "M") << ph;  // complete events and metadata only, no begin/end pairs
    const auto pid = event.at("pid").as_int(), tid = event.at("tid").as_int();
    const double begin = event.at("ts").as_real();
    const std::string name = event.at("name").as_string();
    if (ph == "M") {
      if (name == "thread_name") tracks.insert(event.at("args").at("name").as_string());
      continue;
    }
    ++count[concat(pid, " ", name)];
    EXPECT_GE(event.at("dur").as_real(), 0);
    EXPECT_GE(begin, 0);
    spans[{pid, tid}].emplace_back(begin, begin + event.at("dur").as_real());
    if (event.at("cat").as_string() == "collective" && name == "all_reduce") {
      EXPECT_EQ(event.at("args").at("tag").as_string(), "bucket \"0\"");
      EXPECT_EQ(event.at("args").at("status").as_string(), "done");
    }
  }
  for (const int rank : {0, 1}) {
    EXPECT_EQ(count[concat(rank, " forward")], 3);
    EXPECT_EQ(count[concat(rank, " backward")], 3);
    EXPECT_EQ(count[concat(rank, " all_reduce")], 6);
  }
  EXPECT_TRUE(tracks.count("phases") == 1 && tracks.count("group world") == 1 && tracks.count("group world (2)") == 1);
  for (auto& [track, list] : spans) {
    std::sort(list.begin(), list.end());
    for (std::size_t i = 1; i < list.size(); ++i)
      EXPECT_GE(list[i].first, list[i - 1].second - 0.002) << "spans of track " << track.second << " overlap";
  }
}

TEST(Trace, keeps_the_newest_and_counts_the_rest) {
  Trace trace;
  for (std::size_t i = 0; i < Trace::capacity + 8; ++i) trace.phase("step", static_cast<std::int64_t>(i));
  EXPECT_EQ(trace.dropped(), 7);
  const Value events = parse_json("[" + trace.events(0, 0) + "]", "events");
  EXPECT_EQ(events.items().size(), Trace::capacity + 4);
}

}  // namespace
