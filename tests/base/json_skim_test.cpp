// Skimming JSON gives the reader's verdict without building values.

#include <tessera/base/error.h>
#include <tessera/base/json/json_skim.h>
#include <tessera/base/value.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

/// The members; also empty if the text is not a complete object; `whole` distinguishes the two.
Members skim(std::string_view text, bool* whole = nullptr) {
  Members members;
  const bool is_whole =
      skim_json_object(text, [&](std::string_view name, std::string_view value) { members.emplace_back(name, value); });
  if (whole != nullptr) *whole = is_whole;
  return members;
}

bool is_whole(std::string_view text) {
  bool whole = false;
  skim(text, &whole);
  return whole;
}

bool is_read(std::string_view text) {
  try {
    return parse_json(text, "x.json").is_object();
  } catch (const InputError& error) {
    return std::string_view(error.what()).find("appears twice") != std::string_view::npos ||
           std::string_view(error.what()).find("range of double") != std::string_view::npos;
  }
}

TEST(JsonSkim, GivesTheMembersOfTheObjectItself) {
  EXPECT_EQ(skim(R"( {"step": 7, "event":"eval","phase_ms":{"data":1,"step":2}, "a\"b": [ {"c":3} , null ]} )"),
            (Members{{"step", "7"},
                     {"event", "\"eval\""},
                     {"phase_ms", R"({"data":1,"step":2})"},
                     {R"(a\"b)", R"([ {"c":3} , null ])"}}));
  EXPECT_EQ(skim("{}"), Members());
  EXPECT_TRUE(is_whole("{}"));
}

TEST(JsonSkim, HasTheVerdictOfTheReader) {
  for (const char* text : {"",
                           "{",
                           "}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\":1}}",
                           "{\"a\":1} x",
                           "[1]",
                           "7",
                           "{\"a\":01}",
                           "{\"a\":1.}",
                           "{\"a\":.5}",
                           "{\"a\":-}",
                           "{\"a\":1e}",
                           "{\"a\":-1.5e+3}",
                           "{\"a\":tru}",
                           "{\"a\":true}",
                           "{\"a\":\"\\u12\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\\ud834\\udd1e\"}",
                           "{\"a\":\"\\udd1e\"}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\t\"}",
                           "{\"a\":\"\xC3\xA9\"}",
                           "{\"a\":\"\xC3\"}",
                           "{\"a\":[1,2}",
                           "{\"a\":[]}",
                           "{\"a\":[1,]}",
                           "{a:1}",
                           "\n{\"a\"\n:\t1\r}",
                           "{\"a\":1,\"a\":2}",
                           "{\"a\":1e999}",
                           "{\"a\":+1}",
                           "{\"a\":NaN}"})
    EXPECT_EQ(is_whole(text), is_read(text)) << text;
  for (const std::size_t depth : {254u, 255u, 256u, 257u, 400u}) {
    const std::string text = "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
    EXPECT_EQ(is_whole(text), is_read(text)) << depth;
  }
}

RC_GTEST_PROP(JsonSkim, SpoiltTextsHaveTheVerdictOfTheReader, ()) {
  std::string text = R"({"step":12,"loss":3.25e-1,"x":[true,null,{"y":"\u00e9\n"}],"z":{},"w":-0})";
  const int changes = *rc::gen::inRange(0, 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = *rc::gen::inRange<std::size_t>(0, text.size());
    const char c = *rc::gen::element('"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', '.', 'e', 'u', ' ', '\n', '\0',
                                     'a', '\x80');
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.insert(at, 1, c);
        break;
      default:
        text.erase(at, 1);
    }
  }
  RC_ASSERT(is_whole(text) == is_read(text));
}

}  // namespace
}  // namespace tessera
