// The index of tensors that are stored in pieces: accepted texts, and each rule violated.

#include <tests/format/region_elements.h>
#include <tests/paths.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/state_index.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace tessera::format {
namespace {

/// The message of the InputError for a text; "" if it is accepted.
std::string complaint(const std::string& text) {
  try {
    parse_state_index(text, "o.index.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// An index of one F32 tensor named "w".
std::string with(const std::string& shape, const std::string& pieces) {
  return concat(R"({"format": "tessera-pieces-1", "tensors": {"w": {"dtype": "F32", "shape": )", shape,
                R"(, "pieces": [)", pieces, "]}}}");
}
std::string piece(std::int64_t begin, std::int64_t end, const std::string& file = "a.safetensors",
                  const std::string& more = "") {
  return concat(R"({"file": ")", file, R"(", "begin": )", begin, R"(, "end": )", end, more, "}");
}
std::string box(const std::string& offset, const std::string& shape) {
  return concat(R"(, "box": {"offset": )", offset, R"(, "shape": )", shape, "}");
}

TEST(StateIndex, ReadsBackWhatItWrites) {
  StateIndex index;
  index.tensors = {
      {"b",
       DType::f32,
       {4, 6},
       {{"o-1.safetensors", "b", {{0, 0}, {4, 3}, 0, 12}}, {"o-2.safetensors", "b#1", {{0, 3}, {4, 3}, 0, 12}}}},
      {"a", DType::bf16, {5}, {{"o-1.safetensors", "a", {{0}, {5}, 0, 2}}, {"o-2.safetensors", "a", {{0}, {5}, 2, 5}}}},
      {"a\"\n", DType::i64, {}, {{"o-2.safetensors", "step", {{}, {}, 0, 1}}}},
      {"none", DType::f32, {3, 0}, {}}};
  const std::string text = state_index_text(index);
  std::sort(index.tensors.begin(), index.tensors.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  EXPECT_EQ(parse_state_index(text, "o.index.json"), index);
  EXPECT_NE(text.find("\"total_size\": 114"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("a": {"dtype":"BF16","shape":[5],"pieces":[{"file":"o-1.safetensors","begin":0,"end":2},)"),
            std::string::npos)
      << text;
  EXPECT_EQ(parse_state_index(state_index_text({}), "x"), StateIndex{});
  index.tensors.push_back(index.tensors[0]);
  EXPECT_THROW(state_index_text(index), Error);
}

TEST(StateIndex, TheFormThatCheckpointsHave) {
  const std::string path = tessera::testing::source_path("tests/fixtures/state_index/optimizer.safetensors.index.json");
  const StateIndex index = parse_state_index(read_file(path), path);
  ASSERT_EQ(index.tensors.size(), 3u);
  EXPECT_EQ(index.tensors[0].pieces[1].region, layout::flat_region({4, 3}, 7, 12));
  EXPECT_EQ(index.tensors[1].pieces[2].key, "exp_avg.h.1.weight#2");
  EXPECT_EQ(index.tensors[1].pieces[2].region, (layout::Region{{0, 3}, {4, 3}, 5, 12}));
  EXPECT_EQ(index.tensors[2].shape, std::vector<std::int64_t>{});
  EXPECT_EQ(parse_state_index(state_index_text(index), "again"), index);
}

TEST(StateIndex, EveryRuleHasItsMessage) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[", "o.index.json:1:"},
      {"{}", "format"},
      {R"({"format": "tessera-pieces-2", "tensors": {}})",
       "o.index.json:1:12: format is 'tessera-pieces-2'; this program reads 'tessera-pieces-1'"},
      {R"({"format": "tessera-pieces-1"})", "tensors"},
      {R"({"format": "tessera-pieces-1", "tensors": {}, "x": 1})", "the index has an unknown key 'x'"},
      {R"({"format": "tessera-pieces-1", "tensors": {"w": {"dtype": "F32", "shape": [1], "pieces": [], "y": 0}}})",
       "tensor 'w' has an unknown key 'y'"},
      {R"({"format": "tessera-pieces-1", "tensors": {"w": {"dtype": "F8", "shape": [0], "pieces": []}}})",
       "tensor 'w': dtype F8 is not supported"},
      {with("[2.5]", ""), "integer"},
      {with("[-1]", ""), "-1 is negative"},
      {with("[4294967296, 4294967296]", ""), "does not fit into 64 bits"},
      {with("[4294967296, 0, 4294967296]", ""), "does not fit into 64 bits"},
      {with("[2147483648, 1073741824]", ""), "tensor 'w' has 2^63 bytes or more"},
      {with("[2]", piece(0, 2, "../a.safetensors")),
       "tensor 'w': a piece is in '../a.safetensors'; it must be a .safetensors file directly inside the folder"},
      {with("[2]", piece(0, 2, "a.bin")), "'a.bin'; it must be a .safetensors file"},
      {with("[2]", piece(0, 2, "a.safetensors", R"(, "z": 1)")), "a piece of tensor 'w' has an unknown key 'z'"},
      {with("[2]", R"({"file": "a.safetensors", "begin": 0})"), "end"},
      {with("[2]", piece(0, 3)), "tensor 'w': elements [0, 3) are not a range of the 2 elements"},
      {with("[2]", piece(-1, 2)), "elements [-1, 2) are not a range"},
      {with("[2]", piece(2, 1)), "elements [2, 1) are not a range"},
      {with("[2, 2]", piece(0, 2, "a.safetensors", box("[0]", "[2]"))), "needs the 2 dimensions of the tensor"},
      {with("[2, 2]", piece(0, 2, "a.safetensors", box("[0, 1]", "[1, 2]"))),
       "leaves the tensor of shape [2, 2] in dimension 1"},
      {with("[2, 2]", piece(0, 2, "a.safetensors", box("[0, -1]", "[1, 2]"))), "-1 is negative"},
      {with("[2, 2]", piece(0, 1, "a.safetensors", R"(, "box": {"offset": [0, 0], "shape": [1, 1], "q": 0})")),
       "a box of tensor 'w' has an unknown key 'q'"},
      {with("[4]", concat(piece(0, 2), ",", piece(3, 4, "b.safetensors"))),
       "tensor 'w': its pieces contain 3 of its 4 elements"},
      {with("[4]", ""), "its pieces contain 0 of its 4 elements"},
      {with("[4]", concat(piece(0, 3), ",", piece(2, 4, "b.safetensors"))),
       "tensor 'w': elements [0, 3) of 'w' in a.safetensors and elements [2, 4) of 'w' in b.safetensors overlap"},
      {with("[4]", concat(piece(0, 2), ",", piece(2, 4))), "'w' in a.safetensors is listed as two pieces"},
      {R"({"format": "tessera-pieces-1", "metadata": {"total_size": 9}, "tensors": {"w": {"dtype": "F32", )"
       R"("shape": [2], "pieces": [)" +
           piece(0, 2) + "]}}}",
       "total_size is 9, but the tensors have 8 bytes"},
      {R"({"format": "tessera-pieces-1", "metadata": {"total_size": -8}, "tensors": {}})", "total_size is -8"},
      {R"({"format": "tessera-pieces-1", "tensors": {"w": 1, "w": 2}})", "w"},
  };
  for (const auto& [text, part] : cases)
    EXPECT_NE(complaint(text).find(part), std::string::npos) << "'" << part << "' in '" << complaint(text) << "'";
  EXPECT_EQ(complaint(with("[4]", concat(piece(2, 4, "b.safetensors"), ",", piece(0, 2)))), "");
  EXPECT_EQ(complaint(with("[2, 2]", concat(piece(0, 2, "a.safetensors", box("[0, 0]", "[2, 1]")), ",",
                                            piece(0, 2, "b.safetensors", box("[0, 1]", "[2, 1]"))))),
            "");
}

std::int64_t any_of(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end));
}

/// Splits off and returns the part of the box from `cut` on in dimension d; the box keeps the rest.
layout::Region split(layout::Region& region, std::size_t d, std::int64_t cut) {
  layout::Region upper = region;
  upper.offset[d] += cut;
  upper.shape[d] -= cut;
  region.shape[d] = cut;
  for (layout::Region* part : {&region, &upper}) {
    part->end = 1;
    for (const std::int64_t size : part->shape) part->end *= size;
  }
  return upper;
}

/// A tensor split into boxes, and those into ranges of their elements, at random places, shuffled over files.
StoredTensor any_partition() {
  StoredTensor tensor{"w", DType::f32, {}, {}};
  for (std::int64_t d = any_of(0, 5); d > 0; --d) tensor.shape.push_back(any_of(0, 8) == 0 ? 0 : any_of(1, 7));
  std::vector<layout::Region> boxes = {layout::whole_region(tensor.shape)};
  for (std::int64_t cuts = any_of(0, 6); cuts > 0 && !tensor.shape.empty(); --cuts) {
    layout::Region& chosen = boxes[static_cast<std::size_t>(any_of(0, static_cast<std::int64_t>(boxes.size())))];
    const std::size_t d = static_cast<std::size_t>(any_of(0, static_cast<std::int64_t>(tensor.shape.size())));
    const layout::Region upper = split(chosen, d, any_of(0, chosen.shape[d] + 1));
    boxes.push_back(upper);
  }
  for (const layout::Region& whole : boxes) {
    layout::Region rest = whole;
    for (std::int64_t cuts = any_of(0, 3); cuts >= 0; --cuts) {
      layout::Region part = rest;
      part.end = cuts == 0 ? rest.end : any_of(rest.begin, rest.end + 1);
      rest.begin = part.end;
      const std::size_t number = tensor.pieces.size();
      tensor.pieces.push_back({concat("o-", number % 3, ".safetensors"), concat("w", number), part});
    }
  }
  for (std::size_t i = tensor.pieces.size(); i > 1; --i)
    std::swap(tensor.pieces[i - 1], tensor.pieces[static_cast<std::size_t>(any_of(0, static_cast<std::int64_t>(i)))]);
  return tensor;
}

/// For each element of the tensor, the number of pieces that contain it, counted one by one.
std::map<std::int64_t, int> times_held(const StoredTensor& tensor) {
  std::map<std::int64_t, int> times;
  for (const StoredPiece& piece : tensor.pieces)
    for (std::int64_t place = piece.region.begin; place < piece.region.end; ++place)
      ++times[testing::element_of(piece.region, tensor.shape, place)];
  return times;
}

TEST(StateIndex, PartitionsAreAcceptedAndNothingElseIs) {
  int refused = 0;
  EXPECT_TRUE(rc::check([&] {
    StoredTensor tensor = any_partition();
    RC_ASSERT(complaint(state_index_text({{tensor}})) == "");
    RC_ASSERT(parse_state_index(state_index_text({{tensor}}), "x").tensors[0] == tensor);

    // One piece made longer, shorter, moved, doubled or dropped: accepted only if each element is still in exactly one
    // piece.
    auto& victim = tensor.pieces[static_cast<std::size_t>(any_of(0, static_cast<std::int64_t>(tensor.pieces.size())))];
    switch (any_of(0, 6)) {
      case 0:
        ++victim.region.end;
        break;
      case 1:
        --victim.region.end;
        break;
      case 2:
        ++victim.region.begin;
        break;
      case 3:
        if (!tensor.shape.empty()) victim.region.offset[0] += any_of(-1, 2);
        break;
      case 4:
        tensor.pieces.push_back({victim.file, "another", victim.region});
        break;
      default:
        tensor.pieces.pop_back();
    }
    bool inside = true;
    for (const StoredPiece& piece : tensor.pieces) try {
        layout::check_region(piece.region, tensor.shape, "");
      } catch (const InputError&) {
        inside = false;
      }
    bool once = inside;
    if (inside) {
      const auto times = times_held(tensor);
      once = static_cast<std::int64_t>(times.size()) == layout::whole_region(tensor.shape).numel();
      for (const auto& [at, count] : times) once = once && count == 1;
    }
    RC_ASSERT(complaint(state_index_text({{tensor}})).empty() == once);
    refused += once ? 0 : 1;
  }));
  EXPECT_GT(refused, 30);
}

TEST(StateIndex, HugeTensorsAndManyPiecesTakeLittleTime) {
  const std::int64_t numel = std::int64_t{1} << 60, parts = 1 << 12;
  StoredTensor tensor{"w", DType::u8, {1 << 30, 1 << 30}, {}};
  for (std::int64_t i = 0; i < parts; ++i)
    tensor.pieces.push_back(
        {"o.safetensors", concat(i), layout::flat_region(tensor.shape, numel / parts * i, numel / parts * (i + 1))});
  EXPECT_EQ(complaint(state_index_text({{tensor}})), "");
  // Columns interleave along the whole tensor, so every pair of them must be compared.
  StoredTensor columns{"w", DType::u8, {1 << 20, 6000}, {}};
  for (std::int64_t i = 0; i < 6000; ++i)
    columns.pieces.push_back({"o.safetensors", concat(i), {{0, i}, {1 << 20, 1}, 0, 1 << 20}});
  EXPECT_NE(complaint(state_index_text({{columns}})).find("its boxes need more than 16777216 comparisons"),
            std::string::npos);
}

TEST(StateIndex, TooManyPiecesAreRefused) {
  std::string pieces = "0";  // pieces are counted before their content is checked
  for (std::size_t i = 0; i < kMostPieces; ++i) pieces += ",0";
  EXPECT_NE(complaint(with("[1]", pieces)).find("the index lists more than 1048576 pieces"), std::string::npos);
}

}  // namespace
}  // namespace tessera::format
