#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/report.h>
#include <tests/paths.h>

namespace tessera::train {
namespace {

Report small_report() {
  Report report;
  report.title = "gpt2, 1.0 M parameters";
  report.facts = {"2 processes"};
  StepMetrics step;
  step.step = 1;
  step.loss = 4.5;
  step.memory_by_rank = {1, 2};
  for (const Value& line : {to_json(step), to_json(RunTotals{})})
    report.metrics.push_back(std::make_shared<const std::string>(dump_json(line, -1, 9)));
  report.configuration = Value::make_object(
      {{"Data", Value::make_object({{"train_file", Value::make_object({{"value", Value::of("a.txt")},
                                                                       {"origin", Value::of("--train_file")}})}})}});
  report.communication = Value::make_array();
  report.sample_prompt = "In the";
  report.sample_text = " beginning </script><script>alert(1)</script> & {{data}}";
  return report;
}

/// The data that the page's script reads.
Value data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const std::size_t end = page.find("</script>", begin);
  return parse_json(page.substr(begin, end - begin), "report");
}

TEST(Report, CarriesItsDataAsJson) {
  const Report report = small_report();
  const Value data = data_of(render(report));
  EXPECT_EQ(data.at("summary").at("title").as_string(), report.title);
  EXPECT_EQ(data.at("metrics").items().size(), 2u);
  EXPECT_DOUBLE_EQ(data.at("metrics").items()[0].at("loss").as_real(), 4.5);
  EXPECT_EQ(data.at("configuration").at("Data").at("train_file").at("origin").as_string(), "--train_file");
}

TEST(Report, TellsWhatLimitsTheRun) {
  Report report = small_report();
  report.advice = "input-bound: 50 % of the time goes into reading rows";
  report.memory.push_back(to_json(MemoryByKind{1, 2, 3, 4, 5, 6, 7}));
  report.sample_before = "</script>";
  const Value data = data_of(render(report));
  EXPECT_EQ(data.at("advice").as_string(), report.advice);
  EXPECT_EQ(data.at("memory").items()[0].at("activations").as_int(), 6);
  EXPECT_EQ(data.at("sample").at("before").as_string(), "</script>");
}

TEST(Report, ShowsUnitsAndWhatWasPredicted) {
  Report report = small_report();
  report.predicted_memory.push_back(Value::make_object({{"parameters", Value::of(7)}}));
  report.units.push_back(Value::make_array({Value::of("unit"), Value::of("parameters")}));
  const Value data = data_of(render(report));
  EXPECT_EQ(data.at("predicted_memory").items()[0].at("parameters").as_int(), 7);
  EXPECT_EQ(data.at("units").items()[0].items()[1].as_string(), "parameters");
}

TEST(Report, IsSmall) { EXPECT_LT(render(small_report()).size(), 200'000u); }

TEST(Report, TextCannotBreakOutOfItsElement) {
  const Report report = small_report();
  const std::string page = render(report);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(data_of(page).at("sample").at("text").as_string(), report.sample_text);
}

/// A script with a syntax error shows an empty page. No interpreter is available, so check that our script's quotation
/// marks, brackets and braces are paired and that strings end on their line.
TEST(Report, TheScriptsMarksComeInPairs) {
  const std::string script = read_file(testing::source_path("tessera/train/reporting/assets/report.js"));
  std::string open;
  std::size_t number = 0;
  for (const std::string& line : split(script, '\n')) {
    ++number;
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote != 0) {
        if (c == '\\') ++i;
        if (c == quote) quote = 0;
      } else if (c == '/' && i + 1 < line.size() && line[i + 1] == '/') {
        break;
      } else if (c == '\'' || c == '"' || c == '`') {
        quote = c;
      } else if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        ASSERT_FALSE(open.empty()) << "report.js:" << number << ": " << line;
        ASSERT_EQ(open.back(), c) << "report.js:" << number << ": " << line;
        open.pop_back();
      }
    }
    ASSERT_EQ(quote, 0) << "report.js:" << number << ": " << line;
  }
  EXPECT_EQ(open, "");
}

TEST(Report, NeedsNoNetwork) {
  const std::string page = render(small_report());
  EXPECT_NE(page.find("Dygraph"), std::string::npos);
  for (const char* reference : {"src=\"http", "src='http", "href=\"http", "@import", "url(http"})
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  EXPECT_EQ(page.find("{{report_js}}"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
