/// \file
/// tessera bench comm, inside a rank: measures collectives, several backends alternately; rank 0 prints.

#include <ATen/ATen.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/terminal.h>
#include <tessera/base/value.h>
#include <tessera/comm/world.h>
#include <tools/tessera/bench_comm_options.h>

#include "bench_operation.h"
#include "tool.h"

namespace tessera::tool {
namespace {

constexpr double round_seconds = 0.005;
constexpr int most_operations = 1000;  // operations of a round

at::ScalarType scalar_type(const std::string& name) {
  static const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf},
      {"int32", at::kInt},     {"int64", at::kLong},     {"int8", at::kChar},         {"uint8", at::kByte}};
  for (const auto& [key, type] : types)
    if (key == name) return type;
  throw InputError("--dtype " + name + " is unknown");
}

/// The quantile of `values` at `share`.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

/// Elementwise maximum over the ranks.
std::vector<double> maximum(const comm::Group& group, const std::vector<double>& values) {
  at::Tensor all = at::tensor(values, at::kDouble).to(group.device());
  group.all_reduce(all, comm::Reduction::max).wait();
  all = all.cpu();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// Shows on stderr that a long measurement is alive: a self-overwriting line on a terminal, otherwise a line every ten
/// seconds.
class Ticker {
 public:
  Ticker(bool speaks, std::size_t total) : speaks_(speaks), terminal_(on_terminal(STDERR_FILENO)), total_(total) {}
  ~Ticker() { clear(); }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  void at(std::size_t done, const BenchOperation& what, int round, int rounds) {
    const std::int64_t now = monotonic_ns();
    if (!speaks_ || now - last_ns_ < (terminal_ ? 200'000'000 : 10'000'000'000)) return;
    last_ns_ = now;
    const std::string text =
        concat("bench comm: ", done + 1, " of ", total_, ": ", what.op(), " ",
               format_bytes(static_cast<std::uint64_t>(what.bytes())), ", round ", round + 1, " of ", rounds);
    if (terminal_) {
      std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
      drawn_ = true;
    } else {
      log::info(text);
    }
  }
  void clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
  }

 private:
  bool speaks_, terminal_, drawn_ = false;
  std::size_t total_;
  std::int64_t last_ns_ = monotonic_ns();
};

double timed(BenchOperation& operation, const comm::Group& group, int times) {
  const std::int64_t begin = monotonic_ns();
  for (int i = 0; i < times; ++i) operation.run(group);
  return seconds_since(begin) / times;
}

/// The slowest rank's seconds for one operation, by backend and round. The backends take turns.
template <class Tick>
std::vector<std::vector<double>> measure(BenchOperation& operation, const std::vector<comm::Group>& groups,
                                         const BenchCommOptions& options, const Tick& tick) {
  const comm::Group& control = groups.front();
  std::vector<int> times;
  for (const comm::Group& group : groups) {
    operation.check(group);
    double estimate = timed(operation, group, 1);
    for (int i = 1; i < options.warmup; ++i) estimate = timed(operation, group, 1);
    estimate = maximum(control, {estimate}).front();
    times.push_back(static_cast<int>(std::clamp(round_seconds / estimate, 1.0, double{most_operations})));
  }
  std::vector<std::vector<double>> seconds(groups.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::size_t turn = round % 2 == 0 ? i : groups.size() - 1 - i;
      control.barrier().wait();
      seconds[turn].push_back(timed(operation, groups[turn], times[turn]));
    }
    tick(round);
  }
  for (auto& row : seconds) row = maximum(control, row);
  return seconds;
}

/// Figures of one backend for one operation and size.
struct Row {
  std::string backend;
  double latency_us, p95_us, algbw, busbw;
  // Time ratio to the first backend, pair by pair; not set in the first row.
  bool compared = false;
  double ratio = 0, ratio_p10 = 0, ratio_p90 = 0;
};

std::vector<Row> figures(const BenchOperation& operation, const std::vector<comm::Group>& groups,
                         const std::vector<std::vector<double>>& seconds) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double typical = median(seconds[i]);
    Row row{groups[i].backend(), typical * 1e6, quantile(seconds[i], 0.95) * 1e6,
            static_cast<double>(operation.bytes()) / typical * 1e-9,
            static_cast<double>(operation.wire_bytes()) / typical * 1e-9};
    if (i > 0) {
      std::vector<double> ratios;
      for (std::size_t r = 0; r < seconds[i].size(); ++r) ratios.push_back(seconds[i][r] / seconds[0][r]);
      row.compared = true;
      row.ratio = median(ratios);
      row.ratio_p10 = quantile(ratios, 0.1);
      row.ratio_p90 = quantile(ratios, 0.9);
    }
    rows.push_back(row);
  }
  return rows;
}

void print_json(const BenchOperation& operation, const std::vector<Row>& rows, int ranks,
                const BenchCommOptions& options) {
  for (const Row& row : rows) {
    Value line = Value::make_object({{"op", Value::of(operation.op())},
                                     {"backend", Value::of(row.backend)},
                                     {"ranks", Value::of(ranks)},
                                     {"bytes", Value::of(operation.bytes())},
                                     {"dtype", Value::of(options.dtype)},
                                     {"shared", Value::of(options.shared)},
                                     {"rounds", Value::of(options.rounds)},
                                     {"latency_us", Value::of(row.latency_us)},
                                     {"latency_p95_us", Value::of(row.p95_us)},
                                     {"algbw_gb_per_s", Value::of(row.algbw)},
                                     {"busbw_gb_per_s", Value::of(row.busbw)}});
    if (row.compared) {
      line.set("compared_with", Value::of(rows.front().backend));
      line.set("time_ratio", Value::of(row.ratio));
      line.set("time_ratio_p10", Value::of(row.ratio_p10));
      line.set("time_ratio_p90", Value::of(row.ratio_p90));
    }
    std::printf("%s\n", dump_json(line, -1, 6).c_str());
  }
}

void print_heading(const std::string& op, int ranks, const std::vector<comm::Group>& groups,
                   const BenchCommOptions& options, bool first) {
  const char* tensors = options.shared ? "tensors in the shared arena" : "ordinary tensors";
  std::printf("%s%s: %d %s, %s, %s, %d rounds\n", first ? "" : "\n", op.c_str(), ranks, ranks == 1 ? "rank" : "ranks",
              options.dtype.c_str(), tensors, options.rounds);
  std::printf("%10s  %-9s %11s %11s %7s %7s", "size", "backend", "latency us", "p95 us", "algbw", "busbw");
  if (groups.size() > 1) std::printf("  time / %s's", groups.front().backend().c_str());
  std::printf("\n");
}

void print_rows(const BenchOperation& operation, const std::vector<Row>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const std::string size = i == 0 ? format_bytes(static_cast<std::uint64_t>(operation.bytes())) : "";
    std::printf("%10s  %-9s %11.1f %11.1f %7.2f %7.2f", size.c_str(), row.backend.c_str(), row.latency_us, row.p95_us,
                row.algbw, row.busbw);
    if (row.compared) std::printf("  %5.2f (%.2f .. %.2f)", row.ratio, row.ratio_p10, row.ratio_p90);
    std::printf("\n");
  }
}

}  // namespace

int bench_comm(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  const BenchCommOptions options = parse_bench_comm(arguments);
  InitOptions init_options;
  init_options.backend = options.backends.front();
  init_options.device = options.device;
  comm::World& world = init(environment, init_options);
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<comm::Group> groups = {world.group()};
  for (std::size_t i = 1; i < options.backends.size(); ++i)
    groups.push_back(world.new_group(everyone, concat("bench ", i), options.backends[i]));

  // The group whose backend allocates the tensors: with --shared, one that can read peers' tensors in place.
  const auto reads_in_place = [](const comm::Group& g) { return g.capabilities().reads_peers_in_place; };
  const auto reader = std::find_if(groups.begin(), groups.end(), reads_in_place);
  const comm::Group home = reader == groups.end() ? groups.front() : *reader;

  const bool speaks = world.rank() == 0;
  std::size_t total = 0, done = 0;
  for (const std::string& op : options.ops) total += op == "barrier" ? 1 : options.bytes.size();
  Ticker ticker(speaks, total);
  for (const std::string& op : options.ops) {
    if (speaks && !options.json) print_heading(op, world.size(), groups, options, done == 0);
    for (const std::int64_t bytes : options.bytes) {
      BenchOperation operation(op, home, bytes, scalar_type(options.dtype), options.shared);
      const auto seconds =
          measure(operation, groups, options, [&](int round) { ticker.at(done, operation, round, options.rounds); });
      ++done;
      if (speaks) {
        ticker.clear();
        const std::vector<Row> rows = figures(operation, groups, seconds);
        options.json ? print_json(operation, rows, world.size(), options) : print_rows(operation, rows);
        std::fflush(stdout);
      }
      if (op == "barrier") break;  // a barrier has only one size
    }
  }
  if (speaks && !options.json) std::printf("\nalgbw, busbw in GB/s (10^9 bytes); latency: median of the rounds\n");
  std::fflush(stdout);
  shutdown();
  return 0;
}

}  // namespace tessera::tool
