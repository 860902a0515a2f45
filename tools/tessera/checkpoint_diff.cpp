/// \file
/// tessera checkpoint diff: lists the tensors that differ between two model folders or checkpoints, and by how much.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/resolve/command_flags.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/tensor_difference.h>
#include <tools/tessera/text_progress.h>
#include <tools/tessera/whole_tensors.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <set>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint diff: which tensors differ, and by how much\n\n"
    "usage: tessera checkpoint diff A B [flags]\n\n"
    "A, B: model folders or checkpoint-N folders (single or sharded weights; optimizer state is\n"
    "compared when both have it), or .safetensors files.\n\n"
    "  --tolerance X    ignores differences of at most X [0]\n"
    "  --all            also lists equal tensors\n\n"
    "Exit code: 0 equal, 1 different.\n";

struct Line {
  double gap;
  std::string text;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t n : shape) parts.push_back(std::to_string(n));
  return concat("[", join(parts), "]");
}

class Comparison {
 public:
  Comparison(double tolerance, bool all) : tolerance_(tolerance), all_(all) {}

  void compare(const std::string& what, const WholeTensors& a, const WholeTensors& b) {
    TextProgress progress;
    std::uint64_t done = 0;
    std::set<std::string> in_a;
    for (const auto& left : a.tensors()) {
      const std::string& name = left.name;
      in_a.insert(name);
      progress.show(concat("comparing ", what), static_cast<std::int64_t>(done), static_cast<std::int64_t>(a.bytes()),
                    true);
      const auto* right = b.find(name);
      if (right == nullptr)
        differs("only in A", name);
      else if (left.shape != right->shape)
        differs(concat(shape_text(left.shape), " and ", shape_text(right->shape)), name);
      else if (left.dtype != right->dtype)
        differs(concat(format::dtype_name(left.dtype), " and ", format::dtype_name(right->dtype)), name);
      else
        values(name, difference(left.dtype, a.read(left), b.read(*right)));
      done += left.bytes;
    }
    for (const auto& right : b.tensors())
      if (!in_a.contains(right.name)) differs("only in B", right.name);
    std::stable_sort(lines_.begin(), lines_.end(), [](const Line& x, const Line& y) { return x.gap > y.gap; });
    std::cout << concat(what, ": ", a.tensors().size(), " and ", b.tensors().size(), " tensors, ", different_,
                        " different\n");
    for (const Line& line : lines_) std::cout << line.text;
    any_ = any_ || different_ > 0;
    lines_.clear();
    different_ = 0;
  }
  void note(const std::string& text) {
    std::cout << text;
    any_ = true;
  }
  bool any() const { return any_; }

 private:
  void differs(const std::string& how, const std::string& name) {
    ++different_;
    lines_.push_back({std::numeric_limits<double>::infinity(), concat("  ", name, "  ", how, "\n")});
  }
  void values(const std::string& name, const TensorDifference& d) {
    const bool counts = d.different > 0 && (d.largest > tolerance_ || tolerance_ == 0);
    different_ += counts;
    if (!counts && !all_) return;
    lines_.push_back({d.different == 0 ? -1 : d.largest,
                      d.different == 0 ? concat("  ", name, "  equal\n")
                                       : concat("  ", name, "  ", d.different, " of ", d.elements,
                                                " elements, at most ", format_real(d.largest, 4), " (relative ",
                                                format_real(d.largest_relative, 3), ", element ", d.where, ")\n")});
  }

  double tolerance_;
  bool all_, any_ = false;
  std::uint64_t different_ = 0;
  std::vector<Line> lines_;
};

bool has_optimizer(const std::string& path) {
  const std::string file = path_join(path, "optimizer.safetensors");
  return is_directory(path) && (path_exists(file) || path_exists(file + ".index.json"));
}

/// "adapter_model" for folders that contain adapters only.
std::string stem_of(const std::string& path) {
  return is_directory(path) && !path_exists(path_join(path, "model.safetensors")) &&
                 path_exists(path_join(path, "adapter_model.safetensors"))
             ? "adapter_model"
             : "model";
}

}  // namespace

int checkpoint_diff(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {"tolerance"});
  const config::Flags flags("checkpoint diff", rest, {"tolerance"}, {"all"});
  if (paths.size() != 2) throw InputError(concat("tessera checkpoint diff takes two paths, found ", paths.size()));
  const double tolerance = flags.real("tolerance", 0);
  if (!(tolerance >= 0)) throw InputError(concat("--tolerance ", tolerance, ": expected at least 0"));
  Comparison comparison(tolerance, flags.has("all"));
  comparison.compare("weights", WholeTensors::weights(paths[0], stem_of(paths[0])),
                     WholeTensors::weights(paths[1], stem_of(paths[1])));
  if (has_optimizer(paths[0]) && has_optimizer(paths[1]))
    comparison.compare("optimizer state", WholeTensors::optimizer(paths[0]), WholeTensors::optimizer(paths[1]));
  else if (has_optimizer(paths[0]) != has_optimizer(paths[1]))
    comparison.note(concat("optimizer state: only in ", has_optimizer(paths[0]) ? "A" : "B", "\n"));
  return static_cast<int>(comparison.any() ? ExitCode::failed : ExitCode::done);
}

}  // namespace tessera::tool
