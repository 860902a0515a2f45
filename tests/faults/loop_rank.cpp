/// \file
/// A Tessera rank for the fault scripts: joins the job and repeats an all-reduce of 64 KB, reported as steps.
///
///   loop_rank [--steps N] [--step_ms M] [--spin RANK,STEP]
///
/// --spin: that rank computes forever instead of performing that step. Prints "ready PID" after its first step.

#include <ATen/ATen.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

namespace {

[[noreturn]] void spin_for_ever() {
  std::printf("spins\n");
  std::fflush(stdout);
  for (volatile std::uint64_t count = 0;;) count = count + 1;
}

int loop(const std::map<std::string, std::string>& given) {
  using namespace tessera;
  const auto number = [&](const std::string& text) { return static_cast<int>(parse_int(text).value_or(-1)); };
  const auto spin = split(given.at("--spin"), ',');
  comm::World& world = init();
  at::Tensor data = at::ones({16384});
  for (int step = 1; step <= number(given.at("--steps")); ++step) {
    const std::int64_t begin = monotonic_ns();
    if (number(spin.at(0)) == world.rank() && number(spin.at(1)) == step) {
      comm::heartbeat().set_phase("forward");
      spin_for_ever();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(number(given.at("--step_ms"))));
    const comm::Tag tag("bucket 0");
    world.group().all_reduce(data).wait();
    comm::StepSign sign;
    sign.step = step;
    sign.total_steps = number(given.at("--steps"));
    sign.step_ns = monotonic_ns() - begin;
    comm::heartbeat().set_step(sign);
    if (step == 1) {
      std::printf("ready %d\n", getpid());
      std::fflush(stdout);
    }
    data.fill_(1);
  }
  shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--steps", "1000000000"}, {"--step_ms", "1"}, {"--spin", "-1,-1"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  try {
    return loop(given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
