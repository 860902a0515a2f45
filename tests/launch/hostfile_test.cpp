#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/fleet/hostfile.h>

#include <tests/error_of.h>

#include <cstdio>
#include <functional>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int>;
using tessera::testing::error_of;

void expect_says(const std::function<void()>& call, const std::string& part) {
  const std::string message = error_of(call);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Hostfile, NamesAndSlots) {
  const auto hosts =
      parse_hostfile("# the cluster\n\nworker-0 slots=2 # first\n  worker-1\tslots=4\r\nuser@10.0.0.3 slots=1", "f");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0], (HostSlots{"worker-0", {0, 1}, 2}));
  EXPECT_EQ(hosts[1].name, "worker-1");
  EXPECT_EQ(hosts[1].slots, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(hosts[2].name, "user@10.0.0.3");
}

TEST(Hostfile, BadLinesAreNamed) {
  const auto says = [](const std::string& text, const std::string& part) {
    expect_says([&] { parse_hostfile(text, "hosts"); }, part);
  };
  says("a slots=2\n\na slots=3\n", "hosts:3: host a is already listed on line 1");
  says("a\n", "hosts:1: no slots=N after the host's name");
  says("a slots=2 b\n", "hosts:1: too many words");
  says("a slot=2\n", "hosts:1: 'slot=2' is not slots=N");
  says("#\na slots=0\n", "hosts:2: 'slots=0'");
  says("a slots=-1", "'slots=-1'");
  says("a slots=4097", "from 1 to 4096");
  says("a slots=99999999999999999999", "from 1 to 4096");
  says("-oProxyCommand=x slots=1", "is not a host name");
  says("a;b slots=1", "is not a host name");
  says("", "hosts:1: the file contains no host");
  says("# nothing\n", "the file contains no host");
  EXPECT_THROW(read_hostfile("/does/not/exist"), InputError);
}

TEST(Hostfile, BadHostsOfAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/bad";
  EXPECT_TRUE(read_bad_hosts(path).empty());
  write_file_atomically(path, "# rack 7\nnode3  # 2026-11-26 bandwidth: slow\n\n  far1\n");
  EXPECT_EQ(read_bad_hosts(path), (std::vector<std::string>{"node3", "far1"}));
  write_file_atomically(path, "node3\n<html>\n");
  expect_says([&] { read_bad_hosts(path); }, "bad:2: '<html>' is not a host name");
}

TEST(Hostfile, FiltersOfDeepSpeed) {
  const auto hosts = parse_hostfile("worker-0 slots=4\nworker-1 slots=4\n", "f");
  const auto shown = [&](const std::string& include, const std::string& exclude) {
    std::string text;
    for (const HostSlots& host : filter_hosts(hosts, include, exclude)) {
      text += host.name + ":";
      for (int slot : host.slots) text += std::to_string(slot);
      text += " ";
    }
    return text;
  };
  EXPECT_EQ(shown("", ""), "worker-0:0123 worker-1:0123 ");
  EXPECT_EQ(shown("worker-0@worker-1:0,2", ""), "worker-0:0123 worker-1:02 ");
  EXPECT_EQ(shown("worker-1:2,0@worker-0:3", ""), "worker-0:3 worker-1:02 ");  // in the hostfile's order
  EXPECT_EQ(shown("worker-1", ""), "worker-1:0123 ");
  EXPECT_EQ(shown("", "worker-1:0"), "worker-0:0123 worker-1:123 ");
  EXPECT_EQ(shown("", "worker-1"), "worker-0:0123 ");
  EXPECT_EQ(shown("", "worker-1:0,1,2,3"), "worker-0:0123 ");
  EXPECT_EQ(shown("", "worker-0:1@worker-1"), "worker-0:023 ");
  const auto says = [&](const std::string& include, const std::string& exclude, const std::string& part) {
    expect_says([&] { filter_hosts(hosts, include, exclude); }, part);
  };
  says("worker-0", "worker-1", "exclude each other");
  says("worker-2", "", "host 'worker-2' is not in the hostfile; did you mean");
  says("worker-0:4", "", "host worker-0 has slots 0 to 3, not 4");
  says("worker-0:", "", "'' is not a slot number");
  says("worker-0:x", "", "'x' is not a slot number");
  says("worker-0:1,1", "", "slot 1 of host worker-0 is listed twice");
  says("worker-0@worker-0:1", "", "twice");
  says("", "worker-0@worker-1", "no slot of the hostfile is left");
  says("@", "", "host ''");
}

TEST(Hostfile, DevicesOfSomeSlots) {
  EXPECT_EQ(device_list({"a", {0, 1}, 4}), "");
  EXPECT_EQ(device_list({"a", {1, 3}, 4}), "1,3");
  EXPECT_EQ(device_list({"a", {1}, 2}), "1");
}

TEST(NodeList, WhatScontrolPrints) {
  EXPECT_EQ(expand_node_list("node1"), (Strings{"node1"}));
  EXPECT_EQ(expand_node_list("a,b.c-d"), (Strings{"a", "b.c-d"}));
  EXPECT_EQ(expand_node_list("n[1-3]"), (Strings{"n1", "n2", "n3"}));
  EXPECT_EQ(expand_node_list("n[08-11,3]-ib,x"), (Strings{"n08-ib", "n09-ib", "n10-ib", "n11-ib", "n3-ib", "x"}));
  EXPECT_EQ(expand_node_list("rack[0-1]n[1-2]"), (Strings{"rack0n1", "rack0n2", "rack1n1", "rack1n2"}));
  EXPECT_EQ(expand_node_list("n[099-101]"), (Strings{"n099", "n100", "n101"}));
  EXPECT_EQ(expand_node_list("n[9-10]"), (Strings{"n9", "n10"}));
  EXPECT_EQ(expand_node_list("n1,n1"), (Strings{"n1", "n1"}));
  for (const char* bad : {"", ",", "a,", "n[", "n]", "n[1", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[[1]]", "n[1-2-3]",
                          "n[0-99999]", "a[0-999]b[0-999]", "a b", "n[1],,b", "-n[1]", "n[1 ]"}) {
    EXPECT_THROW(expand_node_list(bad), InputError) << bad;
  }
}

TEST(NodeList, TaskCounts) {
  EXPECT_EQ(expand_task_counts("4"), (Ints{4}));
  EXPECT_EQ(expand_task_counts("4(x2),3"), (Ints{4, 4, 3}));
  EXPECT_EQ(expand_task_counts("1,0(x3)"), (Ints{1, 0, 0, 0}));
  for (const char* bad : {"", "x", "4(x)", "4(x0)", "4(x2", "4(2)", "4,", "4(x99999999)", "-1"}) {
    EXPECT_THROW(expand_task_counts(bad), InputError) << bad;
  }
}

// Expands a list of random pieces and compares with the definition: nested loops over the numbers, printed by printf
// with the width of the range's first number.
RC_GTEST_PROP(NodeList, AgreesWithTheDefinition, ()) {
  const auto word = [] {
    std::string text(1, "abcxyz"[*rc::gen::inRange(0, 6)]);
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) text += "ab-.09"[*rc::gen::inRange(0, 6)];
    return text;
  };
  Strings expected, pieces;
  for (int names = *rc::gen::inRange(1, 4); names > 0; --names) {
    std::string piece = word();
    Strings expansions = {piece};
    for (int brackets = *rc::gen::inRange(0, 4); brackets > 0; --brackets) {
      std::string inside;
      Strings numbers;
      for (int ranges = *rc::gen::inRange(1, 4); ranges > 0; --ranges) {
        const int width = *rc::gen::inRange(1, 5), first = *rc::gen::inRange(0, 120), count = *rc::gen::inRange(1, 5);
        char buffer[32];
        std::snprintf(buffer, sizeof buffer, "%0*d", width, first);
        const int shown = static_cast<int>(std::string(buffer).size());
        inside += (inside.empty() ? "" : ",") + std::string(buffer);
        if (count > 1) {
          std::snprintf(buffer, sizeof buffer, "%0*d", width, first + count - 1);
          inside += "-" + std::string(buffer);
        }
        for (int at = first; at < first + count; ++at) {
          std::snprintf(buffer, sizeof buffer, "%0*d", shown, at);
          numbers.push_back(buffer);
        }
      }
      const std::string suffix = *rc::gen::inRange(0, 2) == 0 ? "" : word();
      piece += "[" + inside + "]" + suffix;
      Strings longer;
      for (const auto& prefix : expansions)
        for (const auto& number : numbers) longer.push_back(prefix + number + suffix);
      expansions = longer;
    }
    pieces.push_back(piece);
    expected.insert(expected.end(), expansions.begin(), expansions.end());
  }
  RC_ASSERT(expand_node_list(join(pieces, ",")) == expected);
}

// Any filter keeps the hosts that set operations keep.
RC_GTEST_PROP(Hostfile, FiltersAgreeWithTheDefinition, ()) {
  std::vector<HostSlots> hosts;
  const int count = *rc::gen::inRange(1, 5);
  std::string file;
  for (int h = 0; h < count; ++h) file += concat("h", h, " slots=", *rc::gen::inRange(1, 5), "\n");
  hosts = parse_hostfile(file, "f");
  Strings specs;
  std::vector<std::vector<bool>> named;
  for (const HostSlots& host : hosts) {
    named.emplace_back(host.slots.size(), false);
    const int how = *rc::gen::inRange(0, 3);
    if (how == 0) continue;
    if (how == 1) {
      specs.push_back(host.name);
      named.back().assign(host.slots.size(), true);
      continue;
    }
    Strings slots;
    for (int slot : host.slots) {
      if (*rc::gen::inRange(0, 2) == 0) continue;
      slots.push_back(std::to_string(slot));
      named.back()[static_cast<std::size_t>(slot)] = true;
    }
    if (!slots.empty()) specs.push_back(host.name + ":" + join(slots, ","));
  }
  if (specs.empty()) {
    specs.push_back("h0");
    named[0].assign(hosts[0].slots.size(), true);
  }
  for (const bool include : {true, false}) {
    std::vector<HostSlots> expected;
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      HostSlots host = hosts[h];
      std::erase_if(host.slots, [&](int slot) { return named[h][static_cast<std::size_t>(slot)] != include; });
      if (!host.slots.empty()) expected.push_back(host);
    }
    const std::string filter = join(specs, "@");
    if (expected.empty()) {
      RC_ASSERT_THROWS_AS(filter_hosts(hosts, include ? filter : "", include ? "" : filter), InputError);
    } else {
      RC_ASSERT(filter_hosts(hosts, include ? filter : "", include ? "" : filter) == expected);
    }
  }
}

}  // namespace
}  // namespace tessera::launch
