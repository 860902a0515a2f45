#include <tools/tessera/plan_output.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/plan/sure.h>

#include <algorithm>
#include <cstdio>

namespace tessera::tool {

using namespace plan;

std::string gigabytes(double bytes) {
  char text[32];
  if (bytes > 0 && bytes < 0.1e9)
    std::snprintf(text, sizeof(text), "%.1f MB", bytes / 1e6);
  else
    std::snprintf(text, sizeof(text), "%.*f GB", bytes < 10e9 ? 2 : 1, bytes / 1e9);
  return text;
}

void print_parts(const Candidate& c) {
  std::printf("  memory%-22s  a step\n", c.plan.pp() > 1 ? concat(" of pp rank ", c.rank).c_str() : "");
  std::size_t memory = 0, time = 0;
  while (true) {
    while (memory < memory_kinds && c.memory.bytes[memory] <= 0) ++memory;
    while (time < time_kinds && c.time.seconds[time] <= 0) ++time;
    if (memory == memory_kinds && time == time_kinds) break;
    std::string left(29, ' '), right;
    char text[96];
    if (memory < memory_kinds) {
      std::snprintf(text, sizeof(text), "  %-14s%10s  ", std::string(name_of(static_cast<MemoryKind>(memory))).c_str(),
                    gigabytes(c.memory.bytes[memory]).c_str());
      left = text;
      left.resize(std::max<std::size_t>(29, left.size()), ' ');
      ++memory;
    }
    if (time < time_kinds) {
      std::snprintf(text, sizeof(text), " %-12s%9.4g s %5.1f %%",
                    std::string(name_of(static_cast<TimeKind>(time))).c_str(), c.time.seconds[time],
                    100 * c.time.seconds[time] / c.seconds);
      right = text;
      ++time;
    }
    if (right.empty()) left = trim(left).insert(0, "  ");
    std::printf("%s%s%s\n", left.c_str(), right.empty() ? "" : " ", right.c_str());
  }
  std::printf("  %-14s%10s     %-12s%9.4g s\n", "in all", gigabytes(c.memory.total()).c_str(), "in all", c.seconds);
}

Engine engine_of_words(const std::optional<std::string>& name, const std::optional<std::string>& year) {
  const auto found = name ? parse_word<EngineName>(*name) : EngineName::tessera;
  if (!found) {
    const std::vector<std::string>& words = words_of(EngineName{}).words;
    const auto near = nearest(*name, words);
    throw InputError(concat("--engine ", *name, ": expected one of ", join(words),
                            near ? concat("; did you mean ", *near, "?") : ""));
  }
  if (!year) return engine_of(*found);
  if (*found == EngineName::tessera)
    throw InputError("--engine_year needs --engine with another program; tessera's version is the installed one");
  const auto number = parse_int(*year);
  if (!number || *number < 2019 || *number > 2100)
    throw InputError(concat("--engine_year ", *year, ": expected a year from 2019 to 2100"));
  return engine_of(*found, static_cast<int>(*number));
}

std::string command_of(const Question& q, const Plan& plan) {
  return q.model.recorded ? join(run_lines(q, plan), "; ") : "tessera train " + join(train_arguments(q, plan), " ");
}

Value value_of(const Candidate& c, const Question& q) {
  const Plan& p = c.plan;
  std::vector<Value::Member> memory, time;
  for (std::size_t i = 0; i < memory_kinds; ++i)
    memory.emplace_back(std::string(name_of(static_cast<MemoryKind>(i))), Value::of(c.memory.bytes[i]));
  for (std::size_t i = 0; i < time_kinds; ++i)
    time.emplace_back(std::string(name_of(static_cast<TimeKind>(i))), Value::of(c.time.seconds[i]));
  return Value::make_object({{"plan", Value::of(text_of(p))},
                             {"mesh", Value::of(describe(p.mesh))},
                             {"ep", Value::of(p.mesh.ep)},
                             {"strategy", Value::of(word_of(p.strategy))},
                             {"shard_ranks", Value::of(p.shard_ranks())},
                             {"schedule", p.pp() > 1 ? Value::of(p.schedule) : Value()},
                             {"stages_per_rank", Value::of(p.stages_per_rank)},
                             {"rows", Value::of(p.rows)},
                             {"micro_batches", Value::of(p.micro_batches)},
                             {"recompute_every", Value::of(p.recompute)},
                             {"messages", Value::of(messages_of_step(q.model, p))},
                             {"step_seconds", Value::of(c.seconds)},
                             {"tokens_per_second", Value::of(c.tokens_per_second)},
                             {"mfu", Value::of(c.utilization)},
                             {"memory_bytes", Value::of(c.memory.total())},
                             {"memory_rank", Value::of(c.rank)},
                             {"memory", Value::make_object(std::move(memory))},
                             {"time", Value::make_object(std::move(time))},
                             {"limit", Value::of(limit_of(q, c))},
                             {"command", Value::of(command_of(q, p))}});
}

}  // namespace tessera::tool
