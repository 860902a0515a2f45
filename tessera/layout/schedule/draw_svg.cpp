#include <tessera/layout/schedule/draw.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <tessera/base/error.h>

namespace tessera::layout::schedule {
namespace {

constexpr int margin_left = 130, margin_top = 30, row_height = 26, row_gap = 4, rank_gap = 6, font = 11;

/// Red, green and blue of a kind's first stage; the other stages are lighter.
std::string colour_of(Kind kind, int chunk) {
  constexpr std::array<std::array<int, 3>, 4> colours = {
      {{62, 110, 190}, {30, 140, 120}, {205, 140, 40}, {45, 130, 70}}};
  const auto& colour = colours[static_cast<std::size_t>(kind)];
  const double lighter = 1 - 1 / (1 + 0.9 * std::min(chunk, 4));
  char text[8];
  const auto mix = [&](std::size_t i) { return colour[i] + static_cast<int>((255 - colour[i]) * lighter); };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", mix(0), mix(1), mix(2));
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string number(double value) { return format_real(value, 6); }

void add_rectangle(std::string& svg, const TimedAction& timed, int chunk, double x, double width, int y, bool framed) {
  svg += concat("<rect x=\"", number(x), "\" y=\"", y, "\" width=\"", number(width), "\" height=\"", row_height,
                "\" fill=\"", colour_of(timed.action.kind, chunk), "\" stroke=\"", framed ? "#000" : "#fff",
                "\" stroke-width=\"", framed ? "1.5" : "0.5", "\"><title>", text_of(timed.action), "  ",
                number(timed.start), " to ", number(timed.end), "</title></rect>\n");
  const std::string label = std::to_string(timed.action.micro_batch);
  if (width >= 7.0 * static_cast<double>(label.size()))
    svg += concat("<text x=\"", number(x + width / 2), "\" y=\"", y + row_height / 2 + font / 3,
                  "\" text-anchor=\"middle\" fill=\"", chunk % 2 == 0 ? "#fff" : "#000", "\" pointer-events=\"none\">",
                  label, "</text>\n");
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options) {
  const double end = end_of(schedule, tracks);
  const std::vector<int> chunks = chunk_numbers(schedule);
  const double scale = options.scale > 0 ? options.scale : 1200 / std::max(end, 1e-300);
  const int rank_height = static_cast<int>(tracks.size()) * (row_height + row_gap) + rank_gap;
  const double width = margin_left + end * scale + 20;
  const int height = margin_top + static_cast<int>(schedule.ranks.size()) * rank_height + 10;
  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"", height,
                           "\" font-family=\"sans-serif\" font-size=\"", font,
                           "\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  double x = margin_left;
  for (const Kind kind : {Kind::forward, Kind::input_gradient, Kind::weight_gradient, Kind::backward}) {
    static constexpr std::array<const char*, 4> names = {"F forward", "I input gradient", "W weight gradient",
                                                         "B whole backward"};
    svg += concat("<rect x=\"", number(x), "\" y=\"8\" width=\"12\" height=\"12\" fill=\"", colour_of(kind, 0),
                  "\"/><text x=\"", number(x + 16), "\" y=\"18\">", names[static_cast<std::size_t>(kind)], "</text>\n");
    x += 130;
  }
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (std::size_t i = 0; i < tracks.size(); ++i) {
      const int y = margin_top + static_cast<int>(rank) * rank_height + static_cast<int>(i) * (row_height + row_gap);
      svg += concat("<rect x=\"", margin_left, "\" y=\"", y, "\" width=\"", number(end * scale), "\" height=\"",
                    row_height, "\" fill=\"#eee\"/><text x=\"8\" y=\"", y + row_height / 2 + font / 3, "\">rank ", rank,
                    " ", escaped(tracks[i].title), "</text>\n");
      bool framed = false;
      for (const TimedAction& timed : tracks[i].ranks[rank]) {
        if (!is_compute(timed.action.kind)) continue;
        framed = framed || timed.action.with_next;
        add_rectangle(svg, timed, chunks[static_cast<std::size_t>(timed.action.stage)],
                      margin_left + timed.start * scale, (timed.end - timed.start) * scale, y, framed);
        framed = timed.action.with_next;
      }
    }
  return svg + "</svg>\n";
}

}  // namespace tessera::layout::schedule
