// tessera doctor for a whole job: faults planted between hosts are found and reported with a remedy, a good allocation
// has no findings, and the measurements between hosts are real.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/launch/doctor/allocation.h>
#include <tessera/launch/doctor/meeting.h>
#include <tests/launch/store_under_test.h>

namespace tessera::launch {
namespace {

constexpr int hosts = 6;

Allocation good_allocation() {
  Allocation a;
  for (int host = 0; host < hosts; ++host)
    a.hosts.push_back({concat("node", host), "tessera 0.1.0", "AMD EPYC 9B14", 8, 0.01 + 1e-4 * host, {}});
  a.links.rounds = a.links.rounds_for_all = rounds_of_pairs(hosts);
  for (int from = 0; from < hosts; ++from)
    for (int to = 0; to < from; ++to)
      a.links.links.push_back({from, to, "", 5e-5, 1.1e9, 1e9, 1e-4 * (to - from), 2.5e-5});
  return a;
}

Link& link_of(Allocation& a, int from, int to) {
  return *std::find_if(a.links.links.begin(), a.links.links.end(),
                       [&](const Link& link) { return link.from == from && link.to == to; });
}

void each_link_of(Allocation& a, int host, const std::function<void(Link&)>& change) {
  for (Link& link : a.links.links)
    if (link.from == host || link.to == host) change(link);
}

struct Fault {
  const char* check;
  Health health;
  const char* found;   ///< part of the finding's text
  const char* remedy;  ///< part of the remedy's text
  std::set<std::string> bad;
  std::function<void(Allocation&)> plant;
};

const std::vector<Fault>& faults() {
  using enum Health;
  static const std::vector<Fault> rows = {
      {"shared memory",
       failure,
       "node2: /dev/shm",
       "--shm-size",
       {"node2"},
       [](Allocation& a) {
         a.hosts[2].alone = {{"shared memory", failure, "/dev/shm cannot be used", "--shm-size=2g"}};
       }},
      {"open files",
       failure,
       "node1, node2: 256",
       "ulimit -n",
       {"node1", "node2"},
       [](Allocation& a) {
         a.hosts[1].alone = a.hosts[2].alone = {{"open files", failure, "256", "ulimit -n 65536 before the job"}};
       }},
      {"huge pages",
       warning,
       "node4",
       "nr_hugepages",
       {},
       [](Allocation& a) { a.hosts[4].alone = {{"huge pages", warning, "32 GiB", "vm.nr_hugepages=0"}}; }},
      {"versions",
       failure,
       "0.0.9 on node3",
       "one version",
       {"node3"},
       [](Allocation& a) { a.hosts[3].version = "tessera 0.0.9"; }},
      {"kinds of processor",
       warning,
       "Xeon on node5",
       "--balance_batches",
       {},
       [](Allocation& a) { a.hosts[5].processor = "Xeon"; }},
      {"processors", warning, "4 on node0", "--cpus-per-task", {}, [](Allocation& a) { a.hosts[0].processors = 4; }},
      {"speed of hosts",
       warning,
       "node3",
       "power cap",
       {"node3"},
       [](Allocation& a) { a.hosts[3].core_seconds = 0.02; }},
      {"clocks",
       warning,
       "node4: 3",
       "set-ntp",
       {},
       [](Allocation& a) { each_link_of(a, 4, [](Link& link) { link.clock_ahead += link.to == 4 ? 3 : -3; }); }},
      {"clocks",
       failure,
       "node0: 400",
       "set-ntp",
       {"node0"},
       [](Allocation& a) {
         each_link_of(a, 0, [](Link& link) { link.clock_ahead += 400; });  // the hosts that call it see its clock ahead
       }},
      {"connections",
       failure,
       "node5: no connection with 5 of 5",
       "firewall",
       {"node5"},
       [](Allocation& a) { each_link_of(a, 5, [](Link& link) { link.failure = "Connection refused"; }); }},
      {"connections",
       failure,
       "node4 - node1: No route",
       "firewall",
       {},
       [](Allocation& a) { link_of(a, 4, 1).failure = "No route to host"; }},
      {"bandwidth",
       warning,
       "node2: 95.4 MiB/s to the others",
       "ethtool",
       {"node2"},
       [](Allocation& a) { each_link_of(a, 2, [](Link& link) { link.back = 1e8; }); }},
      {"bandwidth", warning, "node4 - node3", "racks", {}, [](Allocation& a) { link_of(a, 4, 3).there = 2e8; }},
      {"bandwidth",
       warning,
       "less than 1 Gbit/s",
       "--main_process_ip",
       {},
       [](Allocation& a) {
         for (Link& link : a.links.links) link.there = link.back = 1.1e7;
       }},
      {"delay",
       warning,
       "node1: 0.05 ms",
       "every small message",
       {"node1"},
       [](Allocation& a) { each_link_of(a, 1, [](Link& link) { link.round_trip = 4e-3; }); }},
      {"delay",
       warning,
       "most 4 ms, node5 - node0",
       "every small message",
       {},
       [](Allocation& a) { link_of(a, 5, 0).round_trip = 4e-3; }},
  };
  return rows;
}

TEST(DoctorOfHosts, AGoodAllocationHasNoFault) {
  const Allocation a = good_allocation();
  const auto findings = diagnose(a);
  EXPECT_EQ(worst(findings), Health::good) << table_of(a, findings);
  EXPECT_TRUE(bad_hosts(a, findings).empty());
  EXPECT_NE(table_of(a, findings).find("6 hosts: good"), std::string::npos);
}

TEST(DoctorOfHosts, OneHostIsComparedWithNone) {
  Allocation a = good_allocation();
  a.hosts.resize(1);
  a.links = {};
  EXPECT_EQ(worst(diagnose(a)), Health::good);
}

TEST(DoctorOfHosts, EachFaultIsFoundAloneWithItsRemedy) {
  for (const Fault& fault : faults()) {
    Allocation a = good_allocation();
    fault.plant(a);
    const auto findings = diagnose(a);
    int bad = 0;
    for (const SharedFinding& shared : findings) {
      const Finding& finding = shared.finding;
      if (finding.health == Health::good) {
        EXPECT_EQ(finding.remedy, "") << finding.check;
        continue;
      }
      ++bad;
      EXPECT_EQ(finding.check, fault.check);
      EXPECT_EQ(finding.health, fault.health) << fault.check;
      EXPECT_NE(finding.found.find(fault.found), std::string::npos) << finding.found;
      EXPECT_NE(finding.remedy.find(fault.remedy), std::string::npos) << finding.remedy;
    }
    EXPECT_EQ(bad, 1) << fault.check << "\n" << table_of(a, findings);
    std::set<std::string> names;
    for (const BadHost& one : bad_hosts(a, findings)) names.insert(one.host);
    EXPECT_EQ(names, fault.bad) << fault.check << " " << fault.found;
    EXPECT_NE(dump_json(value_of(a, findings)).find(fault.remedy), std::string::npos);
  }
}

TEST(DoctorOfHosts, OfTwoHostsTheSlowerOneIsKnownButNotTheWrongClock) {
  Allocation a = good_allocation();
  a.hosts.resize(2);
  a.links = {1, 1, {{1, 0, "", 5e-5, 1e9, 1e9, 400, 2.5e-5}}};
  a.hosts[0].core_seconds = 0.03;
  const auto findings = diagnose(a);
  const auto bad = bad_hosts(a, findings);
  ASSERT_EQ(bad.size(), 1U) << table_of(a, findings);
  EXPECT_EQ(bad[0].host, "node0");
  EXPECT_NE(bad[0].why.find("speed of hosts"), std::string::npos);
  EXPECT_EQ(worst(findings), Health::failure);
}

TEST(DoctorOfHosts, ReportsTravelAsText) {
  const HostReport report{"node \"1\"", "tessera 0.1.0", "x", 3, 0.25, {{"clock", Health::failure, "5", "set it"}}};
  const HostReport back = report_from(text_of(report));
  EXPECT_EQ(text_of(back), text_of(report));
  EXPECT_EQ(back.alone.at(0).health, Health::failure);
  EXPECT_THROW(report_from("{}"), InputError);
  EXPECT_THROW(report_from(R"({"host":"a","version":"","processor":"","processors":1,"core_seconds":0,)"
                           R"("findings":[{"check":"c","health":"fine","found":"","remedy":""}]})"),
               InputError);
}

TEST(DoctorOfHosts, BadHostsAreRemembered) {
  Allocation a = good_allocation();
  a.hosts[3].core_seconds = 0.02;
  const auto bad = bad_hosts(a, diagnose(a));
  // node1 was bad and is good now; far1 is not in the job; the comment stays.
  const std::string text = updated_bad_hosts("# rack 7\nnode1  # old\nfar1  # broken fan\n", a, bad, "2026-11-26");
  EXPECT_TRUE(text.starts_with("# rack 7\nfar1  # broken fan\nnode3  # 2026-11-26 speed of hosts: node3: up to "))
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(updated_bad_hosts(text, good_allocation(), {}, ""), "# rack 7\nfar1  # broken fan\n");
}

RC_GTEST_PROP(DoctorOfHosts, EveryPairMeetsOnceAndNobodyMeetsTwoAtOnce, ()) {
  const int count = *rc::gen::inRange(1, 40);
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < rounds_of_pairs(count); ++round)
    for (int host = 0; host < count; ++host) {
      const auto other = partner(round, host, count);
      if (!other) continue;
      RC_ASSERT(*other != host);
      RC_ASSERT(partner(round, *other, count) == host);
      if (host < *other) RC_ASSERT(met.insert({host, *other}).second);
    }
  RC_ASSERT(met.size() == static_cast<std::size_t>(count * (count - 1) / 2));
}

TEST(DoctorOfHosts, ClocksFollowTheLinksThatKnowBest) {
  LinkTable table;
  table.links = {{1, 0, "", 0, 1, 1, -2, 0.5},
                 {2, 0, "", 0, 1, 1, 0, 0.1},
                 {2, 1, "", 0, 1, 1, 1.9, 0.1},
                 {3, 0, "refused", 0, 0, 0, 0, 0}};
  const auto clocks = clocks_ahead(table, 4);
  ASSERT_TRUE(clocks[1] && clocks[2] && !clocks[3]);
  EXPECT_DOUBLE_EQ(clocks[1]->seconds, 1.9) << "by way of host 2, not straight";
  EXPECT_DOUBLE_EQ(clocks[1]->within, 0.2);
  EXPECT_DOUBLE_EQ(clocks[2]->seconds, 0);
}

std::int64_t wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Each host is a thread with its own client; `change` modifies the options of individual hosts.
std::vector<LinkTable> measure(StoreUnderTest& store, int count, const std::function<void(int, LinkOptions&)>& change) {
  std::vector<LinkTable> tables(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (int host = 0; host < count; ++host)
    threads.emplace_back([&, host] {
      StoreClient client = store.client();
      LinkOptions options;
      options.host = host;
      options.hosts = count;
      options.address = "127.0.0.1";
      options.key_prefix = "t/";
      options.seconds = 0.01;
      options.patience = std::chrono::seconds(600);
      change(host, options);
      tables[static_cast<std::size_t>(host)] = measure_links(client, options);
    });
  threads.clear();
  return tables;
}

TEST(DoctorOfHosts, LinksAreMeasured) {
  StoreUnderTest store;
  const testing::Stopwatch watch;
  const auto tables = measure(store, 5, [](int host, LinkOptions& options) {
    if (host == 3) options.now = [] { return wall_clock() + 7'000'000'000; };
  });
  for (const LinkTable& table : tables) {
    ASSERT_EQ(table.links.size(), 10U);
    EXPECT_EQ(table.rounds, 5);
    for (const Link& link : table.links) {
      EXPECT_EQ(link.failure, "");
      EXPECT_GT(link.there, 0);
      EXPECT_GT(link.back, 0);
      EXPECT_GT(link.round_trip, 0);
      EXPECT_LT(link.round_trip, watch.seconds());
      EXPECT_EQ(link.there, tables[0].links[static_cast<std::size_t>(&link - table.links.data())].there);
    }
    const auto clocks = clocks_ahead(table, 5);
    for (std::size_t host = 0; host < 5; ++host)
      EXPECT_NEAR(clocks[host].value().seconds, host == 3 ? 7 : 0, clocks[host]->within + 1e-3) << host;
  }
}

TEST(DoctorOfHosts, OfALargeAllocationSomeRoundsAreMeasured) {
  StoreUnderTest store;
  const auto tables = measure(store, 6, [](int, LinkOptions& options) { options.most_rounds = 2; });
  EXPECT_EQ(tables[0].rounds, 2);
  EXPECT_EQ(tables[0].rounds_for_all, 5);
  EXPECT_EQ(tables[0].links.size(), 6U);
}

TEST(DoctorOfHosts, StrangersAtTheMeasuringPortAreNotAnswered) {
  StoreUnderTest store;
  std::jthread stranger([&] {
    StoreClient client = store.client();
    const std::string place = client.get("t/place/0", std::chrono::seconds(600));
    const std::size_t first = place.find(' '), second = place.find(' ', first + 1);
    RawPeer peer(std::stoi(place.substr(first + 1, second - first - 1)));
    std::string hello = std::string(32, 'a') + std::string("\1\0\0\0\0\0\0\0", 8);
    peer.send(hello);
    EXPECT_EQ(peer.receive(1), "") << "a wrong token";
  });
  const auto tables = measure(store, 2, [](int host, LinkOptions&) {
    if (host == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  EXPECT_EQ(tables[1].links.at(0).failure, "");
}

TEST(DoctorOfHosts, AHostThatCannotBeReachedIsALinkWithAFailure) {
  StoreUnderTest store;
  StoreClient client = store.client();
  client.set("t/place/0", "127.0.0.1 1 " + std::string(32, 'x'));  // nothing listens on port 1
  client.set("t/links/0", "[]");
  std::vector<LinkTable> tables(3);
  std::vector<std::jthread> threads;
  for (const int host : {1, 2})
    threads.emplace_back([&, host] {
      StoreClient own = store.client();
      LinkOptions options;
      options.host = host;
      options.hosts = 3;
      options.address = "127.0.0.1";
      options.key_prefix = "t/";
      options.seconds = 0.01;
      options.patience = std::chrono::seconds(600);
      tables[static_cast<std::size_t>(host)] = measure_links(own, options);
    });
  threads.clear();
  for (const std::size_t host : {1, 2}) {
    const auto& links = tables[host].links;
    ASSERT_EQ(links.size(), 3U);
    for (const Link& link : links)
      EXPECT_EQ(link.failure.find("127.0.0.1:1: Connection refused") != std::string::npos, link.to == 0)
          << link.failure;
  }
}

TEST(DoctorOfHosts, DoctorsOfAJobMeet) {
  StoreUnderTest store;
  const UniqueFd secret = secret_to_fd(store.secret());
  std::vector<std::optional<Allocation>> met(4);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      RankEnvironment environment;
      environment.rank = rank;
      environment.world_size = 4;
      environment.local_rank = rank % 2;
      environment.local_world_size = 2;
      environment.store_address = "127.0.0.1";
      environment.store_port = store.port();
      environment.secret_fd = secret.get();
      EXPECT_TRUE(can_meet(environment));
      Readings readings;
      readings.host = concat("node", rank / 2);
      readings.core_seconds = {0.3, 0.1, 0.2};
      const HostReport own = report_of(readings);
      EXPECT_EQ(own.core_seconds, 0.2);
      met[static_cast<std::size_t>(rank)] = meet(environment, environment.local_rank == 0 ? &own : nullptr);
    });
  threads.clear();
  EXPECT_FALSE(met[1] || met[3]);
  for (const int rank : {0, 2}) {
    const auto& allocation = met[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(allocation);
    ASSERT_EQ(allocation->hosts.size(), 2U);
    EXPECT_EQ(allocation->hosts[1].host, "node1");
    ASSERT_EQ(allocation->links.links.size(), 1U);
    EXPECT_EQ(allocation->links.links[0].failure, "");
  }
}

}  // namespace
}  // namespace tessera::launch
