// Building and changing values; JSON texts at the edges of the grammar; YAML scalars that readers interpret
// differently.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include <tests/error_of.h>
#include <tests/growth.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace tessera {
namespace {

using tessera::testing::error_of;

// The index starts at 16 members; grow well past its first size.
TEST(Value, SetAndFindStayRightWhileAnObjectGrows) {
  Value v = Value::make_object();
  for (int i = 0; i < 1000; ++i) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_EQ(v.find(key), nullptr);
    v.set(key, Value::of(i));
    ASSERT_NE(v.find(key), nullptr);
    EXPECT_EQ(v.find(key)->as_int(), i);
  }
  v.set("key500", Value::of("replaced"));
  EXPECT_EQ(v.members().size(), 1000u);
  EXPECT_EQ(v.at("key500").as_string(), "replaced");
  EXPECT_EQ(v.members()[999].first, "key999");
}

TEST(Value, ACopyIsIndependent) {
  Value v = Value::make_object();
  for (int i = 0; i < 100; ++i) v.set("key" + std::to_string(i), Value::of(i));
  EXPECT_NE(v.find("key99"), nullptr);  // builds the index, which the copy shares
  Value copy = v;
  copy.set("new", Value::of(1));
  v.set("other", Value::of(2));
  EXPECT_EQ(v.find("new"), nullptr);
  EXPECT_EQ(copy.find("other"), nullptr);
  EXPECT_EQ(copy.at("new").as_int(), 1);
  EXPECT_EQ(v.at("other").as_int(), 2);
  EXPECT_EQ(copy.at("key42").as_int(), 42);
}

TEST(Value, FirstDuplicate) {
  EXPECT_EQ(Value::make_object({{"a", Value::of(1)}, {"b", Value::of(2)}}).duplicate(), std::nullopt);
  EXPECT_EQ(Value::make_object({{"a", Value::of(1)}, {"b", Value::of(2)}, {"a", Value::of(3)}}).duplicate(), 2u);
  std::vector<Value::Member> many;
  for (int i = 0; i < 50; ++i) many.emplace_back("key" + std::to_string(i % 40), Value::of(i));
  const Value v = Value::make_object(many);
  EXPECT_EQ(v.duplicate(), 40u);
  EXPECT_EQ(v.at("key3").as_int(), 3);  // the first one wins
}

TEST(Value, WrongKindsOfValuesMadeByTheProgram) {
  EXPECT_EQ(error_of([] { Value::of(1).as_string(); }), "(made by the program): expected a string, found an integer");
  EXPECT_EQ(error_of([] { Value::of(1).at("a"); }), "(made by the program): expected an object, found an integer");
  EXPECT_EQ(error_of([] { Value().items(); }), "(made by the program): expected an array, found null");
  Value text = Value::of("x");
  EXPECT_EQ(error_of([&] { text.push_back(Value()); }), "(made by the program): expected an array, found a string");
  EXPECT_EQ(error_of([&] { text.set("k", Value()); }), "(made by the program): expected an object, found a string");
  EXPECT_EQ(error_of([] { Value::of(0.5).as_bool(); }),
            "(made by the program): expected true or false, found a real number");
}

TEST(Value, IntegersFromReals) {
  EXPECT_EQ(Value::of(1e15).as_int(), 1000000000000000);
  EXPECT_EQ(Value::of(-9007199254740992.0).as_int(), -9007199254740992);
  EXPECT_THROW(Value::of(9007199254740994.0).as_int(), InputError);  // beyond 2^53
  EXPECT_THROW(Value::of(1.5).as_int(), InputError);
  EXPECT_THROW(Value::of(HUGE_VAL).as_int(), InputError);
  EXPECT_THROW(Value::of(std::nan("")).as_int(), InputError);
}

RC_GTEST_PROP(Json, RealsSurviveExactly, (double real)) {
  RC_PRE(std::isfinite(real));
  const double back = parse_json(dump_json(Value::of(real)), "x").as_real();
  RC_ASSERT(back == real);
}

// All scalar values of Unicode, written as UTF-8 and as \u escapes, read back as the same string.
RC_GTEST_PROP(Json, UnicodeSurvives, ()) {
  const auto code =
      *rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 0xD800), rc::gen::inRange<std::uint32_t>(0xE000, 0x110000));
  char escaped[32];
  if (code < 0x10000)
    std::snprintf(escaped, sizeof escaped, "\"\\u%04X\"", code);
  else
    std::snprintf(escaped, sizeof escaped, "\"\\u%04x\\u%04x\"", 0xD800 + ((code - 0x10000) >> 10),
                  0xDC00 + ((code - 0x10000) & 0x3FF));
  const std::string text = parse_json(escaped, "x").as_string();
  RC_ASSERT(is_utf8(text));
  RC_ASSERT(parse_json(dump_json(Value::of(text)), "x").as_string() == text);
}

// A cut anywhere inside a JSON object is an InputError with a position, never a shorter value.
TEST(Json, EveryTruncationIsAnError) {
  const std::string text = R"({"a": [1, -2.5e3, true, null, "x\u00e9\ud834\udd1e"], "b": {"c": false}})";
  ASSERT_NO_THROW(parse_json(text, "x.json"));
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(error_of([&] { parse_json(text.substr(0, length), "x.json"); }).substr(0, 9), "x.json:1:") << length;
}

TEST(Json, RefusesWhatOtherReadersAccept) {
  for (const char* text : {"",
                           " ",
                           "[1,]",
                           "{,}",
                           "{a:1}",
                           "{'a':1}",
                           "[1 2]",
                           "{\"a\" 1}",
                           "nul",
                           "nullx",
                           "True",
                           "NaN",
                           "Infinity",
                           "-",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "1e+",
                           "0x10",
                           "-01",
                           "\"\t\"",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\ud834\"",
                           "\"\\udd1e\"",
                           "\"\\u+123\"",
                           "[1]]",
                           "/**/1",
                           "\xEF\xBB\xBF{}"})
    EXPECT_THROW(parse_json(text, "x"), InputError) << text;
}

TEST(Json, PositionsCountLinesOfBothKinds) {
  EXPECT_EQ(error_of([] { parse_json("{\r\n  \"a\": 1,\r\n  \"b\": x\r\n}", "d.json"); }),
            "d.json:3:8: expected a value, found 'x'");
  EXPECT_EQ(error_of([] { parse_json("[\n\n\n\"\xC3\xA9\", \xC3\xA9]", "d.json"); }),
            "d.json:4:7: expected a value, found '\xC3\xA9'");
  EXPECT_EQ(error_of([] { parse_json("[\"a\nb\"]", "d.json"); }),
            "d.json:1:4: control characters in strings must be escaped, found control character 10");
}

TEST(Json, AFileMayBeginWithAByteOrderMark) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "a.json");
  write_file_atomically(path, "\xEF\xBB\xBF{\"a\": 1}");
  EXPECT_EQ(read_json(path).at("a").as_int(), 1);
}

TEST(Json, FilesHaveALimit) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "big.json");
  write_file_atomically(path, "[1, 2, 3]");
  EXPECT_EQ(read_json(path).items().size(), 3u);
  EXPECT_THROW(read_json(path, 4), InputError);
  EXPECT_THROW(read_json(path_join(folder.path(), "none.json")), InputError);
}

TEST(Json, Layout) {
  const Value v = parse_json(R"({"a":[],"b":{},"c":[1,{"d":"e"}]})", "x");
  EXPECT_EQ(dump_json(v, -1), R"({"a":[],"b":{},"c":[1,{"d":"e"}]})");
  EXPECT_EQ(dump_json(v, 2),
            "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"e\"\n    }\n  ]\n}");
  EXPECT_EQ(dump_json(Value::of(HUGE_VAL)), "null");
  EXPECT_EQ(dump_json(Value::of(std::string("\x01\x1f\"\\\n"))), R"("\u0001\u001f\"\\\n")");
}

TEST(Yaml, NumbersAsTheCoreSchemaSaysThem) {
  const Value v = parse_yaml(
      "a: +5\nb: -5\nc: +-5\nd: 0x1F\ne: .5\nf: -.inf\ng: 1_000\nh: 12e03\ni: 0\nj: -0x1\nk: 0.5\nl: 1e8\n", "x.yaml");
  EXPECT_EQ(v.at("a").as_int(), 5);
  EXPECT_EQ(v.at("b").as_int(), -5);
  EXPECT_EQ(v.at("c").as_string(), "+-5");
  EXPECT_EQ(v.at("d").as_int(), 31);
  EXPECT_EQ(v.at("e").as_real(), 0.5);
  EXPECT_EQ(v.at("f").as_real(), -HUGE_VAL);
  EXPECT_EQ(v.at("g").as_string(), "1_000");
  EXPECT_EQ(v.at("h").as_real(), 12000);
  EXPECT_EQ(v.at("i").as_int(), 0);
  EXPECT_EQ(v.at("j").as_string(), "-0x1");
  EXPECT_EQ(v.at("k").as_real(), 0.5);
  EXPECT_EQ(v.at("l").as_int(), 100000000);  // YAML 1.1 readers take it as text
}

TEST(Yaml, OctalLookingNumbersAreRefusedUnlessQuoted) {
  for (const char* text : {"a: 010\n", "a: -010\n", "a: +007\n", "a: 0o17\n", "a: 00\n", "010: a\n"})
    EXPECT_NE(error_of([&] { parse_yaml(text, "x.yaml"); }).find("octal"), std::string::npos) << text;
  EXPECT_EQ(parse_yaml("a: \"010\"\n", "x").at("a").as_string(), "010");
  EXPECT_EQ(parse_yaml("a: '0o17'\n", "x").at("a").as_string(), "0o17");
}

TEST(Yaml, KeysAndAliases) {
  EXPECT_NE(error_of([] { parse_yaml("~: 1\n", "x.yaml"); }).find("x.yaml:1:1: a key must be"), std::string::npos);
  EXPECT_NE(error_of([] { parse_yaml("? [a, b]\n: 1\n", "x.yaml"); }).find("a key must be"), std::string::npos);
  EXPECT_EQ(error_of([] { parse_yaml("1: a\n\"1\": b\n", "x.yaml"); }),
            "x.yaml:2:1: the key \"1\" appears twice (first at x.yaml:1:4); keep one of them");
  const Value v = parse_yaml("a: &x [1, 2]\nb: *x\n", "x.yaml");
  EXPECT_EQ(v.at("b").items().size(), 2u);
  EXPECT_EQ(v.at("b").where().str(), "x.yaml:1:4");  // the location of the original
  EXPECT_THROW(parse_yaml("a: *nowhere\n", "x.yaml"), InputError);
}

TEST(Yaml, ManyKeysAreFast) {
  const auto with_keys = [](int keys) {
    std::string text;
    for (int i = 0; i < keys; ++i) text += concat("key", i, ": ", i, "\n");
    return text;
  };
  const std::string small = with_keys(2500), large = with_keys(20'000);
  EXPECT_EQ(parse_yaml(large, "x.yaml").at("key19999").as_int(), 19999);
  EXPECT_LE(
      tessera::testing::growth([&] { (void)parse_yaml(small, "x.yaml"); }, [&] { (void)parse_yaml(large, "x.yaml"); }),
      tessera::testing::linear_growth);
}

TEST(Yaml, EmptyAndDeepDocuments) {
  EXPECT_TRUE(parse_yaml("", "x").is_null());
  EXPECT_TRUE(parse_yaml("# nothing\n", "x").is_null());
  EXPECT_THROW(parse_yaml(std::string(1000, '['), "x"), InputError);
  EXPECT_THROW(parse_yaml("a: \xff\n", "x"), InputError);
}

RC_GTEST_PROP(Yaml, AnyBytesParseOrThrowInputError, (const std::string& bytes)) {
  try {
    parse_yaml(bytes, "x");
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace tessera
