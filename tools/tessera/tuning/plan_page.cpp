#include <tools/tessera/tuning/plan_page.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/schedule/draw.h>
#include <tools/tessera/plan_output.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace tessera::tool {

namespace assets {  // cmake/Embed.cmake
extern const std::string_view report_css;
}

namespace {

using namespace plan;

constexpr const char* colours[] = {"var(--c0)", "var(--c1)",   "var(--c2)",   "var(--c3)",    "var(--c4)",
                                   "var(--c5)", "var(--good)", "var(--warn)", "var(--muted)", "var(--line)"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string card(const std::string& title, const std::string& note, const std::string& body) {
  return concat("<section class=\"card\"><div class=\"card-head\"><h2>", title, "</h2><span class=\"muted\">",
                escaped(note), "</span></div>\n", body, "</section>\n");
}

std::string tile(const std::string& value, const std::string& what) {
  return concat("<div class=\"tile\"><b>", escaped(value), "</b><span>", escaped(what), "</span></div>\n");
}

/// A row of .bars: parts with a share of the width, by colour.
struct Part {
  std::size_t colour;
  double share;  ///< 0 to 1
  std::string title;
};
std::string bar(const std::string& name, const std::vector<Part>& parts, const std::string& total) {
  std::string row = concat("<span>", escaped(name), "</span><span class=\"track\">");
  for (const Part& part : parts)
    row += concat("<i style=\"width:", format_real(100 * part.share, 4),
                  "%;background:", colours[part.colour % std::size(colours)], "\" title=\"", escaped(part.title),
                  "\"></i>");
  return concat(row, "</span><span class=\"total\">", escaped(total), "</span>\n");
}

std::string legend(const std::vector<std::pair<std::size_t, std::string>>& names) {
  std::string text = "<div class=\"legend\">";
  for (const auto& [colour, name] : names)
    text += concat("<span><i style=\"background:", colours[colour % std::size(colours)], "\"></i>", escaped(name),
                   "</span>");
  return text + "</div>";
}

std::string days_of(double seconds) {
  const double days = seconds / 86400;
  return days < 100 ? format_real(days, 3) : format_real(std::round(days), 12);
}

std::string table_of_plans(const Question& q, const Answer& answer) {
  std::string rows =
      "<div class=\"scroll\"><table><tr><th>plan</th><th>micro-batches</th><th class=\"number\">step"
      "</th><th class=\"number\">tokens/s</th><th class=\"number\">MFU</th><th class=\"number\">memory"
      "</th><th>what limits it</th></tr>\n";
  for (const Candidate& c : answer.best) {
    const Plan& p = c.plan;
    std::string settings = concat(p.rows, p.rows == 1 ? " row x " : " rows x ", p.micro_batches);
    if (p.pp() > 1) settings += concat(", ", p.schedule, p.stages_per_rank > 1 ? concat(" v", p.stages_per_rank) : "");
    if (p.recompute > 0) settings += ", recompute";
    rows += concat("<tr><td>", escaped(text_of(p)), "</td><td>", escaped(settings), "</td><td class=\"number\">",
                   format_real(c.seconds, 3), " s</td><td class=\"number\">", format_count(c.tokens_per_second),
                   "</td><td class=\"number\">", format_real(100 * c.utilization, 3), " %</td><td class=\"number\">",
                   gigabytes(c.memory.total()), "</td><td>", escaped(limit_of(q, c)), "</td></tr>\n");
  }
  return rows + "</table></div>";
}

std::string memory_card(const Question& q, const Candidate& best) {
  const std::vector<Memory> ranks = memory_of_ranks(q, best.plan);
  double most = 0;
  for (const Memory& m : ranks) most = std::max(most, m.total());
  const bool near = most > 0.4 * q.memory_limit;  // otherwise the kinds could not be distinguished
  if (near) most = std::max(most, q.memory_limit);
  std::vector<bool> used(memory_kinds, false);
  std::string bars = "<div class=\"bars\">\n";
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 32);
  for (std::size_t r = 0; r < shown; ++r) {
    std::vector<Part> parts;
    for (std::size_t k = 0; k < memory_kinds; ++k) {
      if (ranks[r].bytes[k] <= 0) continue;
      used[k] = true;
      const std::string name(name_of(static_cast<MemoryKind>(k)));
      parts.push_back({k, ranks[r].bytes[k] / most, concat(name, ": ", gigabytes(ranks[r].bytes[k]))});
    }
    bars += bar(ranks.size() > 1 ? concat("pp rank ", r) : "every rank", parts, gigabytes(ranks[r].total()));
  }
  std::vector<std::pair<std::size_t, std::string>> names;
  for (std::size_t k = 0; k < memory_kinds; ++k)
    if (used[k]) names.emplace_back(k, std::string(name_of(static_cast<MemoryKind>(k))));
  const std::string more = ranks.size() > shown ? concat(", the first ", shown, " of ", ranks.size(), " stages") : "";
  return card("Memory by rank and kind",
              concat("the full width is ", gigabytes(most),
                     near ? "" : concat(" of ", gigabytes(q.memory_limit), " available"), more),
              bars + "</div>" + legend(names));
}

std::string time_card(const Candidate& best) {
  std::string bars = "<div class=\"bars\">\n";
  for (std::size_t k = 0; k < time_kinds; ++k) {
    const double seconds = best.time.seconds[k];
    if (seconds <= 0) continue;
    const std::string name(name_of(static_cast<TimeKind>(k)));
    bars += bar(name, {{k, seconds / best.seconds, name}},
                concat(format_real(seconds, 3), " s, ", format_real(100 * seconds / best.seconds, 2), " %"));
  }
  return card("Time of a step", concat(format_real(best.seconds, 4), " s"), bars + "</div>");
}

std::string pipeline_card(const Question& q, const Candidate& best) {
  if (best.plan.pp() == 1) return "";
  const Elements elements = elements_of(q.model, best.plan.tp(), best.plan.mesh.ep);
  const PipelineTimes times = pipeline_times(q.model, best.plan, elements, q.cluster);
  const std::int64_t all = best.plan.micro_batches;
  const auto& shape = times.schedule;
  return card("Pipeline",
              concat(best.plan.schedule, ", ", best.plan.pp(), " ranks, ", format_real(times.timing.total, 3),
                     " s for the micro-batches drawn, of ", all),
              "<div class=\"scroll\">" + draw_svg(shape, {layout::schedule::track_of(times.timing)}) + "</div>");
}

/// The best plans for the same batch on fewer and more devices.
struct Scale {
  int devices;
  Candidate best;
};
std::vector<Scale> scaling(const Question& q, const Answer& answer) {
  std::vector<Scale> all;
  const int here = q.cluster.devices;
  for (int shift = -3; shift <= 3; ++shift) {
    Question other = q;
    const std::int64_t devices = shift < 0 ? here >> -shift : std::int64_t{here} << shift;
    if (devices < 1 || devices > 1 << 24 || (shift < 0 && devices << -shift != here)) continue;
    other.cluster.devices = static_cast<int>(devices);
    if (devices < q.cluster.per_node) other.cluster.per_node = static_cast<int>(devices);
    if (devices % other.cluster.per_node != 0) continue;
    // A measured machine has no cores for additional processes.
    if (q.cluster.host_memory > 0 && devices > here) continue;
    if (q.cluster.host_memory > 0)
      other.cluster.device.measured = speeds_for(q.cluster.measured, other.cluster.per_node);
    if (shift == 0) {
      all.push_back({here, answer.best.front()});
      continue;
    }
    try {
      Answer found = search(other);
      if (!found.best.empty()) all.push_back({other.cluster.devices, std::move(found.best.front())});
    } catch (const InputError&) {  // the batch or a fixed axis is not compatible with this number of devices
    }
  }
  return all;
}

std::string scaling_card(const std::vector<Scale>& all, const Candidate& asked) {
  if (all.size() < 2) return "";
  constexpr double width = 520, height = 240, left = 64, right = 20, top = 14, bottom = 40;
  const double base = asked.tokens_per_second / asked.plan.mesh.world_size();  // per device
  const double x0 = std::log2(all.front().devices), x1 = std::log2(all.back().devices);
  double low = all.front().best.tokens_per_second, high = base * all.back().devices;
  for (const Scale& s : all) {
    high = std::max(high, s.best.tokens_per_second);
    low = std::min({low, s.best.tokens_per_second, base * s.devices});
  }
  const double y0 = std::log2(low) - 0.2, y1 = std::log2(high) + 0.2;
  const auto x = [&](int devices) {
    return format_real(left + (std::log2(devices) - x0) / (x1 - x0) * (width - left - right), 5);
  };
  const auto y = [&](double tokens) {
    return format_real(top + (y1 - std::log2(tokens)) / (y1 - y0) * (height - top - bottom), 5);
  };
  std::string svg = concat("<svg viewBox=\"0 0 ", width, " ", height,
                           "\" style=\"width:100%;max-width:760px\" role=\"img\" "
                           "aria-label=\"tokens per second over devices\" font-size=\"11\" fill=\"currentColor\">\n");
  std::string ideal, real;
  for (const Scale& s : all) {
    const double at = s.best.tokens_per_second, best = base * s.devices;
    ideal += concat(x(s.devices), ",", y(best), " ");
    real += concat(x(s.devices), ",", y(at), " ");
    svg += concat("<line x1=\"", x(s.devices), "\" x2=\"", x(s.devices), "\" y1=\"", top, "\" y2=\"", height - bottom,
                  "\" stroke=\"var(--grid)\"/><text x=\"", x(s.devices), "\" y=\"", height - bottom + 16,
                  "\" text-anchor=\"middle\">", s.devices, "</text><circle cx=\"", x(s.devices), "\" cy=\"", y(at),
                  "\" r=\"3.5\" fill=\"var(--c0)\"><title>", escaped(text_of(s.best.plan)),
                  "</title></circle><text x=\"", left - 8, "\" y=\"", y(at),
                  "\" text-anchor=\"end\" dominant-baseline=\"middle\">", format_count(at), "</text>\n");
  }
  svg += concat("<polyline points=\"", ideal, "\" fill=\"none\" stroke=\"var(--c5)\" stroke-dasharray=\"4 4\"/>",
                "<polyline points=\"", real, "\" fill=\"none\" stroke=\"var(--c0)\" stroke-width=\"2\"/><text x=\"",
                (width + left) / 2, "\" y=\"", height - 6, "\" text-anchor=\"middle\">devices</text></svg>\n");
  return card("Tokens per second over devices", "the same global batch; dashed: in proportion",
              svg + legend({{0, "best plan that fits"}, {5, "in proportion to the devices"}}));
}

std::string cost_card(const std::vector<Scale>& all, double tokens, double price) {
  std::string rows = concat(
      "<div class=\"scroll\"><table><tr><th class=\"number\">devices</th><th>plan</th><th class="
      "\"number\">tokens/s</th><th class=\"number\">days</th><th class=\"number\">device-hours</th>",
      price > 0 ? "<th class=\"number\">dollars</th>" : "", "</tr>\n");
  for (const Scale& s : all) {
    const double seconds = tokens / s.best.tokens_per_second, hours = seconds / 3600 * s.devices;
    rows += concat("<tr><td class=\"number\">", s.devices, "</td><td>", escaped(text_of(s.best.plan)),
                   "</td><td class=\"number\">", format_count(s.best.tokens_per_second), "</td><td class=\"number\">",
                   days_of(seconds), "</td><td class=\"number\">", format_count(hours), "</td>",
                   price > 0 ? concat("<td class=\"number\">", format_count(hours * price), "</td>") : "", "</tr>\n");
  }
  return card("Cost",
              concat(format_count(tokens), " tokens",
                     price > 0 ? concat(" at ", format_real(price, 4), " dollars a device and hour")
                               : "; --price adds the cost per device and hour"),
              rows + "</table></div>");
}

std::string neighbours_card(const Question& q, const Candidate& best) {
  std::string rows = "<table><tr><th>changed</th><th>effect</th></tr>\n";
  for (const Neighbour& n : neighbours(q, best))
    rows += concat("<tr><td>", escaped(n.change), "</td><td class=\"value\">", escaped(n.verdict), "</td></tr>\n");
  return card("Why not another", "the best plan with one setting changed", rows + "</table>");
}

}  // namespace

std::string plan_page(const Question& q, const Answer& answer, const PageOptions& options) {
  const Candidate& best = answer.best.front();
  const double parameters = parameter_count(q.model), tokens = options.tokens > 0 ? options.tokens : 20 * parameters;
  const std::string title = concat(q.model.name, " on ", q.cluster.text);
  const std::vector<Scale> scales = scaling(q, answer);
  std::string page = concat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>",
      escaped(title), "</title>\n<style>\n", assets::report_css, "</style></head><body>\n");
  page += concat("<header><div><div class=\"eyebrow\">Plan</div><h1>", escaped(title), "</h1><p class=\"muted\">",
                 format_count(parameters), " parameters; ", q.global_batch, " rows of ", q.sequence, " tokens a step, ",
                 word_of(q.precision), "; ", format_count(static_cast<double>(answer.points)), " plans, ",
                 format_count(static_cast<double>(answer.too_large)), " do not fit in ", gigabytes(q.memory_limit),
                 "</p></div></header>\n<div class=\"tiles\">");
  page +=
      tile(format_count(best.tokens_per_second), "tokens/s") + tile(concat(format_real(best.seconds, 3), " s"), "step");
  page += tile(concat(format_real(100 * best.utilization, 3), " %"), "of the peak (MFU)");
  page += tile(gigabytes(best.memory.total()), concat("memory, of ", gigabytes(q.memory_limit)));
  page +=
      tile(concat(days_of(tokens / best.tokens_per_second), " days"), concat("for ", format_count(tokens), " tokens"));
  page += concat("</div>\n<section class=\"card advice\"><span class=\"bound\">best</span><p>",
                 escaped(text_of(best.plan)), "<br><code>", escaped(options.command), "</code></p></section>\n");
  page += card("Plans", "the fastest of every mesh", table_of_plans(q, answer));
  page += "<div class=\"grid\">" + memory_card(q, best) + time_card(best) + "</div>\n" + pipeline_card(q, best);
  page += scaling_card(scales, best) + cost_card(scales, tokens, options.price) + neighbours_card(q, best);
  return page + concat("<footer class=\"muted\">tessera plan; ", escaped(q.cluster.device.source),
                       "</footer></body></html>\n");
}

}  // namespace tessera::tool
