#include <tessera/base/text.h>
#include <tools/tessera/inspection.h>

#include <algorithm>

namespace tessera::tool {
namespace {

constexpr std::size_t kColumns = 80;

std::string pad(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}
std::string pad_left(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::vector<std::string> parts;
  for (std::int64_t n : shape) parts.push_back(std::to_string(n));
  return join(parts, "x");
}

/// `text` after `first`, wrapped at blanks so that no line exceeds the last column (a longer word gets its own line).
std::string wrapped(const std::string& first, const std::string& text) {
  std::string out, line = first;
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > kColumns && line.size() > first.size()) {
      out += line + "\n";
      line = std::string(first.size(), ' ');
    }
    line += (line.size() == first.size() ? "" : " ") + word;
  }
  return out + line + "\n";
}

std::string tensor_table(const std::vector<InspectedTensor>& tensors) {
  std::size_t name = 6, dtype = 5, shape = 5, bytes = 4;
  std::vector<std::string> sizes;
  for (const InspectedTensor& tensor : tensors) {
    sizes.push_back(format_bytes(tensor.bytes));
    name = std::max(name, tensor.name.size());
    dtype = std::max(dtype, tensor.dtype.size());
    shape = std::max(shape, shape_text(tensor.shape).size());
    bytes = std::max(bytes, sizes.back().size());
  }
  const std::size_t others = dtype + shape + bytes + 6;
  if (others < kColumns - 20) name = std::min(name, kColumns - others);
  const auto row = [&](const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
    const std::string rest = "  " + pad(b, dtype) + "  " + pad_left(c, shape) + "  " + pad_left(d, bytes) + "\n";
    if (a.size() > name) return a + "\n" + std::string(name, ' ') + rest;  // a long name gets its own line
    return pad(a, name) + rest;
  };
  std::string out = row("tensor", "dtype", "shape", "size");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    out += row(tensors[i].name, tensors[i].dtype, shape_text(tensors[i].shape), sizes[i]);
  return out;
}

Value tensor_list(const std::vector<InspectedTensor>& tensors) {
  std::vector<Value> rows;
  for (const InspectedTensor& tensor : tensors) {
    std::vector<Value> shape;
    for (std::int64_t n : tensor.shape) shape.push_back(Value::of(n));
    rows.push_back(Value::make_object({{"name", Value::of(tensor.name)},
                                       {"dtype", Value::of(tensor.dtype)},
                                       {"shape", Value::make_array(std::move(shape))},
                                       {"bytes", Value::of(static_cast<std::int64_t>(tensor.bytes))}}));
  }
  return Value::make_array(std::move(rows));
}

}  // namespace

std::string inspection_text(const Inspection& inspection, bool tensors) {
  std::string out = wrapped("", concat(inspection.path, ": ", inspection.kind));
  std::size_t width = 0;
  for (const auto& [label, text] : inspection.facts) width = std::max(width, label.size());
  for (const auto& [label, text] : inspection.facts) out += wrapped("  " + pad(label, width) + "  ", text);
  if (tensors) out += "\n" + tensor_table(inspection.tensors);
  for (char& c : out)  // names come from the file: control characters must not move the cursor
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  return out;
}

std::string inspection_json(const Inspection& inspection, bool tensors) {
  Value out = Value::make_object({{"path", Value::of(inspection.path)}, {"kind", Value::of(inspection.kind)}});
  for (const auto& [key, value] : inspection.json.members()) out.set(key, value);
  if (tensors) out.set("tensor_list", tensor_list(inspection.tensors));
  return dump_json(out) + "\n";
}

}  // namespace tessera::tool
