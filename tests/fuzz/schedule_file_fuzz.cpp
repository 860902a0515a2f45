// libFuzzer entry for files of pipeline schedules: for any bytes the readers of PyTorch's CSV and of the text form give
// a schedule or an InputError that names the place. The checker then judges it without a crash, and a valid schedule is
// written, read back identically, lowered, timed and drawn. The first byte chooses the form and the bound on messages.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/timing.h>

namespace {

using namespace tessera::layout::schedule;

void require(bool condition) {
  if (!condition) std::abort();
}

void judge(const Schedule& schedule, int outstanding) {
  const auto problem = find_problem(schedule, {.outstanding = outstanding});
  if (problem) {
    require(!problem->reason.empty() && !text_of(*problem).empty());
    return;
  }
  require(parse_text(to_text(schedule), "written") == schedule);
  Schedule nameless = schedule;
  nameless.name.clear();
  const Schedule back = parse_csv(to_csv(schedule), "written");
  require(back == nameless);
  const Schedule lowered = has_messages(schedule) ? schedule : with_messages(schedule);
  require(!find_problem(lowered, {.outstanding = outstanding}));
  const int least = least_outstanding(schedule);
  require(least >= 1 && (outstanding == 0 || outstanding >= least));
  const Timing timing = time_schedule(schedule, {.outstanding = outstanding});
  require(timing.total > 0 && timing.bubble() >= 0);
  require(!draw_text(schedule, {track_of(timing)}).empty() && !draw_svg(schedule, {track_of(timing)}).empty());
  require(!find_problem(with_messages(with_sharding(schedule, Gathering::per_micro_batch, has_backward(schedule)))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const Schedule schedule = data[0] % 3 == 0   ? parse_csv(text, "fuzzed")
                              : data[0] % 3 == 1 ? parse_text(text, "fuzzed")
                                                 : parse_schedule(text, "fuzzed");
    judge(schedule, data[0] / 64);
  } catch (const tessera::InputError& error) {
    require(std::string_view(error.what()).starts_with("fuzzed:"));
  }
  return 0;
}
