/// \file
/// Prints one line of JSON per row of a table of published runs: the measured and the predicted figures.
/// bench/plan_published.py turns them into a report.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/plan/sure.h>
#include <tests/plan/published_runs.h>

#include <cstdio>

int main(int count, char** words) {
  using namespace tessera;
  if (count != 2 && count != 3) {
    std::fputs("plan_published TABLE.csv [TRAIT of engines to leave out]\n", stderr);
    return 2;
  }
  try {
    for (const testing::PublishedRun& run : testing::read_published(words[1])) {
      const std::string reason = testing::left_out(run);
      std::vector<Value::Member> row = {{"line", Value::of(run.line)},           {"source", Value::of(run.source)},
                                        {"model", Value::of(run.model)},         {"gpu", Value::of(run.gpu)},
                                        {"precision", Value::of(run.precision)}, {"left_out", Value::of(reason)}};
      if (reason.empty()) {
        const testing::PublishedPrediction p = testing::predict(run, count == 3 ? words[2] : "");
        std::vector<Value::Member> time;
        for (std::size_t i = 0; i < plan::time_kinds; ++i)
          time.emplace_back(std::string(name_of(static_cast<plan::TimeKind>(i))), Value::of(p.time.seconds[i]));
        for (const auto& [name, number] : std::vector<std::pair<const char*, std::int64_t>>{{"layers", run.layers},
                                                                                            {"hidden", run.hidden},
                                                                                            {"heads", run.heads},
                                                                                            {"sequence", run.sequence},
                                                                                            {"gpus", run.gpus},
                                                                                            {"tp", run.tp},
                                                                                            {"pp", run.pp},
                                                                                            {"v", run.stages_per_rank},
                                                                                            {"dp", run.dp},
                                                                                            {"cp", run.cp},
                                                                                            {"rows", run.rows},
                                                                                            {"batch", run.batch},
                                                                                            {"zero", run.zero}})
          row.emplace_back(name, Value::of(number));
        row.emplace_back("messages", Value::of(messages_of_step(p.model, p.plan)));
        row.emplace_back("equal_within", Value::of(plan::sureness(p.cluster).equal));
        row.emplace_back("mixture", Value::of(p.model.experts.has_value()));
        row.emplace_back("engine", Value::of(concat(word_of(p.plan.engine.name), " of ", p.plan.engine.year)));
        row.emplace_back("recompute", Value::of(run.recompute));
        row.emplace_back("device", Value::of(p.cluster.device.name));
        row.emplace_back("family", Value::of(p.family));
        row.emplace_back("parameters", Value::of(parameter_count(p.model)));
        row.emplace_back("published", Value::of(p.published));
        row.emplace_back("other_figure", Value::of(p.other_figure));
        row.emplace_back("predicted", Value::of(p.time.total()));
        row.emplace_back("time", Value::make_object(std::move(time)));
      }
      std::printf("%s\n", dump_json(Value::make_object(std::move(row)), -1, 6).c_str());
    }
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
