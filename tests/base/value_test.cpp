#include <tessera/base/error.h>
#include <tessera/base/value.h>

#include <tests/error_of.h>
#include <tests/growth.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <type_traits>
#include <utility>

using namespace tessera;

namespace {

using tessera::testing::error_of;
using tessera::testing::growth;
using tessera::testing::linear_growth;

std::string json_error(const std::string& text) {
  return error_of([&] { parse_json(text, "x.json"); });
}
std::string yaml_error(const std::string& text) {
  return error_of([&] { parse_yaml(text, "x.yaml"); });
}

/// Any value without reals, so that equality after a round trip is textual.
rc::Gen<Value> arbitrary_value(int depth) {
  const auto text =
      rc::gen::map(rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)), [](std::string s) { return s; });
  auto leaf = rc::gen::oneOf(
      rc::gen::just(Value()), rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Value::of(b); }),
      rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t i) { return Value::of(i); }),
      rc::gen::map(text, [](std::string s) { return Value::of(std::move(s)); }));
  if (depth == 0) return leaf;
  auto array = rc::gen::map(rc::gen::container<std::vector<Value>>(arbitrary_value(depth - 1)),
                            [](std::vector<Value> v) { return Value::make_array(std::move(v)); });
  auto object = rc::gen::map(rc::gen::container<std::map<std::string, Value>>(text, arbitrary_value(depth - 1)),
                             [](const auto& m) {
                               Value v = Value::make_object();
                               for (const auto& [key, value] : m) v.set(key, value);
                               return v;
                             });
  return rc::gen::oneOf(leaf, array, object);
}

}  // namespace

TEST(InputError, EndsTheProgramWithTheCodeOfBadInput) { EXPECT_EQ(InputError("x").exit_code(), ExitCode::bad_input); }

TEST(Json, ReadsEveryKindWithItsPosition) {
  const Value v =
      parse_json("{\n  \"a\": [1, -2.5e3, true, null],\n  \"b\": {\"c\": \"x\\u00e9\\ud834\\udd1e\\n\"}\n}", "x.json");
  EXPECT_EQ(v.at("a").items()[0].as_int(), 1);
  EXPECT_EQ(v.at("a").items()[1].as_real(), -2500);
  EXPECT_EQ(v.at("a").items()[1].as_int(), -2500);
  EXPECT_TRUE(v.at("a").items()[2].as_bool());
  EXPECT_TRUE(v.at("a").items()[3].is_null());
  EXPECT_EQ(v.at("b").at("c").as_string(), "x\u00e9\U0001d11e\n");
  EXPECT_EQ(v.at("b").at("c").where().str(), "x.json:3:14");
}

TEST(Json, NumbersKeepTheirKind) {
  EXPECT_EQ(parse_json("9223372036854775807", "x").as_int(), INT64_MAX);
  EXPECT_EQ(parse_json("9223372036854775808", "x").kind(), Value::Kind::real);
  EXPECT_EQ(dump_json(Value::of(1.0)), "1.0");
  EXPECT_EQ(dump_json(Value::of(0.1)), "0.1");
  EXPECT_EQ(dump_json(Value::of(1.0 / 3), -1, 9), "0.333333333");
}

TEST(Json, SaysWhereAndWhy) {
  EXPECT_EQ(json_error("{\"a\": 1,}"), "x.json:1:9: expected a key in double quotes, found '}'");
  EXPECT_EQ(json_error("[1,\n 2"), "x.json:2:3: expected ',' or ']' in an array, found the end of the file");
  EXPECT_EQ(json_error("{\"a\": 1, \"a\": 2}"),
            "x.json:1:15: the key \"a\" appears twice (first at x.json:1:7); keep one of them");
  EXPECT_EQ(json_error("\"abc"), "x.json:1:1: a string that begins here never ends");
  EXPECT_EQ(json_error("01"), "x.json:1:2: a number may not begin with 0, found '1'");
  EXPECT_EQ(json_error("// no"), "x.json:1:1: expected a value, found '/'");
  EXPECT_EQ(json_error("1 2"), "x.json:1:3: expected the end of the file after the value, found '2'");
  EXPECT_EQ(json_error("\"\\ud834x\""), "x.json:1:8: expected the low surrogate \\uDC00..\\uDFFF, found 'x'");
  EXPECT_EQ(json_error("1e999"), "x.json:1:1: a number beyond the range of double, found '1'");
  EXPECT_EQ(json_error("\xff"), "x.json:1:1: not valid UTF-8");
  EXPECT_NE(json_error(std::string(300, '[')).find("nested deeper than 256"), std::string::npos);
}

TEST(Json, TypedAccessNamesThePosition) {
  const Value v = parse_json("{\"n_layer\": \"four\", \"rate\": 0.5}", "config.json");
  EXPECT_EQ(error_of([&] { v.at("n_layer").as_int(); }), "config.json:1:13: expected an integer, found a string");
  EXPECT_EQ(error_of([&] { v.at("rate").as_int(); }), "config.json:1:29: expected an integer, found a real number");
  EXPECT_EQ(error_of([&] { v.at("n_layers"); }),
            "config.json:1:1: the key \"n_layers\" is missing (did you mean \"n_layer\"?)");
}

template <class V>
concept GivesPointersIntoItself = requires(V&& value) { std::forward<V>(value).find("x"); };

TEST(Json, ATemporaryValueGivesItsPartsAway) {
  static_assert(GivesPointersIntoItself<const Value&> && !GivesPointersIntoItself<Value>);
  static_assert(!std::is_reference_v<decltype(Value().at("x"))> && !std::is_reference_v<decltype(Value().items())> &&
                !std::is_reference_v<decltype(Value().members())> &&
                !std::is_reference_v<decltype(Value().as_string())> && !std::is_reference_v<decltype(Value().where())>);
  const std::string text =
      concat("{\"a\": [\"", std::string(100, 'x'), "\"], \"b\": [\"", std::string(99, 'y'), "\"]}");
  for (const Value& one : parse_json(text, "x.json").at("a").items())
    EXPECT_EQ(one.as_string(), std::string(100, 'x')) << one.where().str();
  std::string keys;
  for (const auto& [key, value] : parse_json(text, "x.json").members()) keys += concat(key, value.items().size());
  EXPECT_EQ(keys, "a1b1");
  EXPECT_EQ(error_of([&] { parse_json(text, "x.json").at("nothing"); }), "x.json:1:1: the key \"nothing\" is missing");
  EXPECT_EQ(error_of([&] { parse_json("[1]", "x.json").members(); }), "x.json:1:1: expected an object, found an array");
}

RC_GTEST_PROP(Json, DumpAndParseAreInverse, ()) {
  const Value value = *arbitrary_value(2);
  for (const int indent : {-1, 2}) {
    const std::string text = dump_json(value, indent);
    RC_ASSERT(dump_json(parse_json(text, "x"), indent) == text);
  }
}
RC_GTEST_PROP(Json, AnyBytesParseOrThrowInputError, (const std::string& bytes)) {
  try {
    parse_json(bytes, "x");
  } catch (const InputError&) {
  }
}

TEST(Json, LargeObjectsAreIndexedAndCopiesStayValid) {
  const auto with_keys = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i)
      text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + (i + 1 < keys ? "," : "}");
    return text;
  };
  const auto use = [](const std::string& text, int keys) {
    Value copy;
    {
      const Value big = parse_json(text, "x");
      EXPECT_EQ(big.at("key" + std::to_string(keys - 1)).as_int(), keys - 1);
      copy = big;
    }
    for (int i = 0; i < keys; i += 7) ASSERT_EQ(copy.at("key" + std::to_string(i)).as_int(), i);
    EXPECT_EQ(copy.find("key" + std::to_string(keys)), nullptr);
  };
  const std::string small = with_keys(12'500), large = with_keys(100'000);
  EXPECT_LE(growth([&] { use(small, 12'500); }, [&] { use(large, 100'000); }), linear_growth);
}

TEST(Yaml, ReadsCoreSchemaScalars) {
  const Value v = parse_yaml("a: 1\nb: 2.5\nc: true\nd: no\ne: \"1\"\nf:\n  - x\n  - ~\ng: 1e-3\nh: 1.2.3\n", "x.yaml");
  EXPECT_EQ(v.at("a").as_int(), 1);
  EXPECT_EQ(v.at("b").as_real(), 2.5);
  EXPECT_TRUE(v.at("c").as_bool());
  EXPECT_EQ(v.at("d").as_string(), "no");  // YAML 1.2: only true/false are booleans
  EXPECT_EQ(v.at("e").as_string(), "1");
  EXPECT_TRUE(v.at("f").items()[1].is_null());
  EXPECT_EQ(v.at("g").as_real(), 1e-3);
  EXPECT_EQ(v.at("h").as_string(), "1.2.3");
  EXPECT_EQ(v.at("f").items()[0].where().str(), "x.yaml:7:5");
}

TEST(Yaml, IsStrict) {
  EXPECT_EQ(yaml_error("a: 1\na: 2\n"),
            "x.yaml:2:1: the key \"a\" appears twice (first at x.yaml:1:4); keep one of them");
  EXPECT_NE(yaml_error("a: 010\n").find("x.yaml:1:4: '010' looks like an octal number"), std::string::npos);
  EXPECT_NE(yaml_error("b: &x {c: 1}\na:\n  <<: *x\n").find("x.yaml:3:3: merge keys"), std::string::npos);
  EXPECT_NE(yaml_error("a: [1, 2\n").find("x.yaml:"), std::string::npos);
  EXPECT_EQ(
      yaml_error("a: 1\nb: 'x\nc: 2\nd: '\n"),
      "x.yaml:2:4: this quote ' is not closed on its line, so the lines after it become part of the text; close it");
  EXPECT_NE(yaml_error("a: \"x\n  long_key: 2\nd: \"\n").find("x.yaml:1:4: this quote \""), std::string::npos);
  EXPECT_NE(yaml_error("a: 'x\nb: 2\n"), "");
  EXPECT_EQ(parse_yaml("a: 'two\n  lines'\n", "x.yaml").at("a").as_string(), "two lines");
  EXPECT_NE(yaml_error("a: 1\n---\nb: 2\n").find("more than one YAML document"), std::string::npos);
  EXPECT_NE(yaml_error("a: !!python/object x\n").find("is not supported"), std::string::npos);
}

TEST(Yaml, AliasBombIsRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += before + (j < 9 ? ", " : "]\n");
  }
  EXPECT_NE(yaml_error(text).find("aliases expand"), std::string::npos);
}
