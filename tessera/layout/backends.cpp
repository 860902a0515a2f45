#include <tessera/layout/backends.h>

#include <algorithm>
#include <cctype>

namespace tessera {

const WordTable& words_of(Device) {
  static const WordTable words = {{"cpu", "cuda", "auto", "xla"}};
  return words;
}

namespace layout {

const std::vector<BackendRow>& backends() {
  static const std::vector<BackendRow> rows =
      std::apply([](auto... backend) { return std::vector<BackendRow>{backend.row...}; }, Backends{});
  return rows;
}

const BackendRow* find_backend(std::string_view name) {
  const auto found =
      std::find_if(backends().begin(), backends().end(), [&](const auto& row) { return row.name == name; });
  return found == backends().end() ? nullptr : &*found;
}

const BackendRow* fitting_backend(Device device, const Placement& placement) {
  const auto found = std::find_if(backends().begin(), backends().end(), [&](const BackendRow& row) {
    return (row.device == Device::automatic || row.device == device) && row.suits(placement);
  });
  return found == backends().end() ? nullptr : &*found;
}

std::vector<std::string> backend_names(bool with_comparison) {
  std::vector<std::string> names = {"auto"};
  for (const BackendRow& row : backends())
    if (with_comparison || !row.for_comparison) names.emplace_back(row.name);
  return names;
}

std::string device_text(Device device) {
  std::string text = word_of(device);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string_view usual_backend(Device device) {
  const BackendRow* row = fitting_backend(device, {.ranks = 2, .hosts = 2});
  return row == nullptr ? "auto" : row->name;
}

}  // namespace layout
}  // namespace tessera
