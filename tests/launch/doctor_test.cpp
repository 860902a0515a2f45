// tessera doctor: each planted fault is found and reported with its remedy; a good machine has no findings.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/launch/doctor/diagnosis.h>

namespace tessera::launch {
namespace {

constexpr std::int64_t MiB = std::int64_t{1} << 20, GiB = std::int64_t{1} << 30;

Readings good_machine() {
  Readings r;
  r.host = "node1";
  r.unix_seconds = 1'800'000'000;
  r.clock_source = "tsc";
  r.ranks = 4;
  r.processors = 8;
  r.processor_quota = 8;
  r.core_seconds = {1, 1.1, 1, 1, 1.2, 1, 1, 1};
  r.frequency_cap = 1;
  r.available_memory = 60 * GiB;
  r.total_memory = 64 * GiB;
  r.zone_reclaim = 0;
  r.overcommit = 0;
  r.ports = 28232;
  r.open_files = 65536;
  r.processes = 100000;
  r.locked_memory = 8 * MiB;
  r.group_tasks = 5000;
  r.shared_memory = 2 * GiB;
  r.folder = "/data";
  r.folder_bytes = 500 * GiB;
  r.folder_files = 1000000;
  r.write_bytes_per_second = 5e8;
  return r;
}

struct Fault {
  const char* check;
  Health health;
  const char* remedy;  ///< part of the remedy's text
  std::function<void(Readings&)> plant;
};

const std::vector<Fault>& faults() {
  using enum Health;
  static const std::vector<Fault> rows = {
      {"processors", warning, "at most 2 ranks", [](Readings& r) { r.processors = 2, r.processor_quota.reset(); }},
      {"processor quota", warning, "OMP_NUM_THREADS", [](Readings& r) { r.processor_quota = 4; }},
      {"slow cores", warning, "number 5", [](Readings& r) { r.core_seconds[5] = 2.6; }},
      {"frequency", warning, "cpupower", [](Readings& r) { r.frequency_cap = 0.4; }},
      {"free memory", failure, "tessera top", [](Readings& r) { r.available_memory = 3 * GiB; }},
      {"huge pages", warning, "vm.nr_hugepages=0", [](Readings& r) { r.reserved_huge_pages = 32 * GiB; }},
      {"NUMA reclaim", warning, "zone_reclaim_mode=0", [](Readings& r) { r.zone_reclaim = 1; }},
      {"overcommit", warning, "overcommit_memory=0", [](Readings& r) { r.overcommit = 2; }},
      {"shared memory", warning, "--shm-size", [](Readings& r) { r.shared_memory = 64 * MiB; }},
      {"shared memory", failure, "--shm-size", [](Readings& r) { r.shared_memory.reset(); }},
      {"open files", failure, "ulimit -n", [](Readings& r) { r.open_files = 256; }},
      {"processes", failure, "ulimit -u", [](Readings& r) { r.processes = 100; }},
      {"tasks of the group", failure, "pids.max", [](Readings& r) { r.group_tasks = 20; }},
      {"locked memory", warning, "ulimit -l", [](Readings& r) { r.locked_memory = 65536; }},
      {"file size", failure, "ulimit -f", [](Readings& r) { r.file_bytes = MiB; }},
      {"address space", failure, "ulimit -v", [](Readings& r) { r.address_space = 4 * GiB; }},
      {"output folder", failure, "writable", [](Readings& r) { r.folder_writable = false; }},
      {"disk space", warning, "--save_total_limit", [](Readings& r) { r.folder_bytes = 5 * GiB; }},
      {"disk space", failure, "--save_total_limit", [](Readings& r) { r.folder_bytes = 5 * MiB; }},
      {"files on disk", failure, "df -i", [](Readings& r) { r.folder_files = 3; }},
      {"disk speed", warning, "local disk", [](Readings& r) { r.write_bytes_per_second = 3e6; }},
      {"temporary folder", failure, "TMPDIR", [](Readings& r) { r.temporary_writable = false; }},
      {"clock", failure, "set-ntp", [](Readings& r) { r.unix_seconds = 1000; }},
      {"clock source", warning, "TSC", [](Readings& r) { r.clock_source = "hpet"; }},
      {"host name", failure, "/etc/hosts", [](Readings& r) { r.host_resolves = false; }},
      {"listening", failure, "lo up", [](Readings& r) { r.can_listen = false; }},
      {"port range", warning, "ip_local_port_range", [](Readings& r) { r.ports = 10; }},
  };
  return rows;
}

TEST(Doctor, AGoodMachineHasNoFault) {
  const auto findings = diagnose(good_machine());
  EXPECT_EQ(worst(findings), Health::good) << table_of("node1", findings);
  for (const Finding& finding : findings) EXPECT_EQ(finding.remedy, "") << finding.check;
}

TEST(Doctor, WhatAMachineDoesNotTellIsNotJudged) {
  Readings r = good_machine();
  r.clock_source.reset(), r.processor_quota.reset(), r.frequency_cap.reset(), r.zone_reclaim.reset();
  r.overcommit.reset(), r.ports.reset(), r.group_tasks.reset(), r.folder_files.reset();
  r.write_bytes_per_second.reset(), r.core_seconds.clear();
  r.open_files = r.processes = r.locked_memory = -1;
  EXPECT_EQ(worst(diagnose(r)), Health::good);
}

TEST(Doctor, EachFaultIsFoundAloneWithItsRemedy) {
  for (const Fault& fault : faults()) {
    Readings r = good_machine();
    fault.plant(r);
    const auto findings = diagnose(r);
    int bad = 0;
    for (const Finding& finding : findings) {
      if (finding.health == Health::good) continue;
      ++bad;
      EXPECT_EQ(finding.check, fault.check);
      EXPECT_EQ(finding.health, fault.health) << fault.check;
      EXPECT_NE(finding.remedy.find(fault.remedy), std::string::npos) << finding.remedy;
    }
    EXPECT_EQ(bad, 1) << fault.check << "\n" << table_of(r.host, findings);
    EXPECT_NE(dump_json(value_of(r.host, findings)).find(fault.remedy), std::string::npos);
  }
}

TEST(Doctor, ReadsAMachineFromItsFiles) {
  const TemporaryFolder root;
  const auto put = [&](const std::string& path, const std::string& text) {
    const std::string file = root.path() + path;
    make_folders(file.substr(0, file.find_last_of('/')));
    write_file_atomically(file, text);
  };
  put("/proc/meminfo",
      "MemTotal: 4096 kB\nMemAvailable: 600 kB\nHugePages_Free: 3\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n");
  put("/proc/self/cgroup", "0::/job\n");
  put("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/job/pids.max", "100\n");
  put("/sys/fs/cgroup/job/pids.current", "30\n");
  put("/proc/sys/vm/zone_reclaim_mode", "1\n");
  put("/proc/sys/vm/overcommit_memory", "2\n");
  put("/proc/sys/net/ipv4/ip_local_port_range", "40000\t40009\n");
  put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1000000\n");
  put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4000000\n");
  const Readings r = read_machine(root.path(), 2, root.path());
  EXPECT_EQ(r.available_memory, 600 * 1024);
  EXPECT_EQ(r.total_memory, 4096 * 1024);
  EXPECT_EQ(r.reserved_huge_pages, 6 * MiB);
  EXPECT_EQ(r.processor_quota, 1.5);
  EXPECT_EQ(r.group_tasks, 70);
  EXPECT_EQ(r.zone_reclaim, 1);
  EXPECT_EQ(r.overcommit, 2);
  EXPECT_EQ(r.ports, 10);
  EXPECT_EQ(r.clock_source, "hpet");
  EXPECT_EQ(r.frequency_cap, 0.25);
  EXPECT_FALSE(r.shared_memory.has_value()) << "there is no /dev/shm";
  EXPECT_TRUE(r.folder_writable);
  EXPECT_GT(r.write_bytes_per_second.value_or(0), 0);
  for (const std::string& name : list_folder(root.path())) EXPECT_FALSE(name.starts_with(".tessera")) << name;

  put("/proc/self/cgroup", "4:pids:/\n3:cpu,cpuacct:/\n0::/\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(read_machine(root.path(), 2, root.path()).processor_quota.has_value()) << "no limit";
}

TEST(Doctor, ReadsRealLimits) {
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit low = before;
  low.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const TemporaryFolder folder;
  const Readings r = read_machine(folder.path(), 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(r.open_files, 200);
  EXPECT_EQ(worst(diagnose(r)), Health::failure);
}

TEST(Doctor, RefusesAFolderThatIsMissing) { EXPECT_THROW(read_machine("/nowhere/at/all", 1), InputError); }

}  // namespace
}  // namespace tessera::launch
