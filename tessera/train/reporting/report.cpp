#include <tessera/train/reporting/report.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/train/loop/sharding.h>

namespace tessera::train {
namespace assets {  // cmake/Embed.cmake
extern const std::string_view dygraph_js, dygraph_css, report_html, report_css, report_js;
}
namespace {

/// JSON inside <script>: a "<" could end the element, so it is escaped; it occurs only inside strings.
std::string json_for_script(std::string json) {
  for (std::size_t at = json.find('<'); at != std::string::npos; at = json.find('<', at))
    json.replace(at, 1, "\\u003c");
  return json;
}

/// Joins lines that are already JSON into an array.
std::string joined(const MetricsLines& lines) {
  std::string out = "[";
  for (const auto& line : lines) {
    if (out.size() > 1) out += ',';
    out += *line;
  }
  return out + "]";
}

Value strings(const std::vector<std::string>& items) {
  Value array = Value::make_array();
  for (const std::string& item : items) array.push_back(Value::of(item));
  return array;
}

/// Replaces each {{name}} of the template once; inserted text is not searched again.
std::string fill(std::string_view page, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{");
    if (open == std::string_view::npos) break;
    const std::size_t close = page.find("}}", open);
    TESSERA_CHECK(close != std::string_view::npos, "unclosed {{ in the report's template");
    const std::string_view name = page.substr(open + 2, close - open - 2);
    out += page.substr(0, open);
    bool known = false;
    for (const auto& [key, text] : values) {
      if (key != name) continue;
      out += text;
      known = true;
    }
    TESSERA_CHECK(known, "the report's template names ", name);
    page.remove_prefix(close + 2);
  }
  out += page;
  return out;
}

}  // namespace

std::string render(const Report& report) {
  const Value data = Value::make_object({{"summary", Value::make_object({{"title", Value::of(report.title)},
                                                                         {"lines", strings(report.facts)},
                                                                         {"footer", Value::of(report.footer)}})},
                                         {"configuration", report.configuration},
                                         {"communication", report.communication},
                                         {"memory", report.memory},
                                         {"predicted_memory", report.predicted_memory},
                                         {"pipeline", Value::of(report.pipeline)},
                                         {"units", report.units},
                                         {"expert_load", report.expert_load},
                                         {"advice", Value::of(report.advice)},
                                         {"unigram_entropy", Value::of(report.unigram_entropy)},
                                         {"sample", Value::make_object({{"prompt", Value::of(report.sample_prompt)},
                                                                        {"text", Value::of(report.sample_text)},
                                                                        {"before", Value::of(report.sample_before)},
                                                                        {"note", Value::of(report.sample_note)}})}});
  std::string text = concat("{\"metrics\":", joined(report.metrics), ",");
  text += std::string_view(dump_json(data, -1, 9)).substr(1);  // the other members
  const std::string json = json_for_script(std::move(text));
  return fill(assets::report_html, {{"dygraph_css", assets::dygraph_css},
                                    {"report_css", assets::report_css},
                                    {"dygraph_js", assets::dygraph_js},
                                    {"report_js", assets::report_js},
                                    {"data", json}});
}

Value communication_table() {
  Value table = Value::make_array();
  for (const comm::OpTotals& row : comm::recorder().totals()) {
    if (row.payload_bytes > 0 && row.wire_bytes == 0 && row.op != comm::Op::recv)
      continue;  // the group has only one
                 // rank
    const double hidden = row.seconds_in_flight > 0 ? 1 - row.seconds_waited / row.seconds_in_flight : 0;
    table.push_back(Value::make_object({{"axis", Value::of(std::string(comm::axis_of(row.group)))},
                                        {"operation", Value::of(comm::op_name(row.op))},
                                        {"count", Value::of(static_cast<std::int64_t>(row.count))},
                                        {"payload_bytes", Value::of(row.payload_bytes)},
                                        {"wire_bytes", Value::of(row.wire_bytes)},
                                        {"moved_bytes", Value::of(row.moved_bytes)},
                                        {"seconds_waited", Value::of(row.seconds_waited)},
                                        {"seconds_in_flight", Value::of(row.seconds_in_flight)},
                                        {"hidden_share", Value::of(std::clamp(hidden, 0.0, 1.0))}}));
  }
  return table;
}

std::vector<std::string> communication_lines(const Value& table, double seconds) {
  std::vector<std::vector<std::string>> rows = {{"communication", "calls", "bytes", "sent", "waited"}};
  const auto bytes = [](const Value& n) { return format_bytes(static_cast<std::uint64_t>(n.as_int())); };
  for (const Value& row : table.items()) {
    if (row.at("payload_bytes").as_int() == 0) continue;
    const double waited = row.at("seconds_waited").as_real();
    char text[64];
    std::snprintf(text, sizeof text, "%7.2f s %5.1f %%", waited, seconds > 0 ? 100 * waited / seconds : 0.0);
    rows.push_back({concat(row.at("axis").as_string(), "  ", row.at("operation").as_string()),
                    concat(row.at("count").as_int()), bytes(row.at("payload_bytes")), bytes(row.at("moved_bytes")),
                    text});
  }
  return rows.size() == 1 ? std::vector<std::string>{} : aligned(rows);
}

}  // namespace tessera::train
