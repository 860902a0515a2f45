// HJSON: its extensions of JSON, the locations of its values, and the texts that are still refused.

#include <tessera/base/json/json_lenient.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tests/growth.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

std::string read(std::string_view text) { return dump_json(parse_hjson(text, "a.hjson"), -1); }

std::string problem(std::string_view text) {
  try {
    return concat("none: ", read(text));
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(JsonLenient, CommentsAndCommas) {
  EXPECT_EQ(read("{\"a\": 1, // one\n \"b\": [1, 2,], # two\n /* three\n */ \"c\": true,}"),
            R"({"a":1,"b":[1,2],"c":true})");
  EXPECT_EQ(read("{\n  \"a\": 1\n  \"b\": [\n1\n2\n]\n}"), R"({"a":1,"b":[1,2]})");
  EXPECT_EQ(read("# only a comment first\n{}\n// and last"), "{}");
  EXPECT_EQ(read("\xEF\xBB\xBF{\"a\": null}\r\n"), R"({"a":null})");
}

TEST(JsonLenient, WordsOfPythonAreNamed) {
  for (const char* word : {"True", "False", "None", "NaN"})
    EXPECT_EQ(problem(concat("{\"a\": {\"b\": ", word, "}}")),
              concat("a.hjson:1:13: ", word, " is Python syntax; JSON accepts numbers, true, false and null"));
}

TEST(JsonLenient, WithoutQuotes) {
  EXPECT_EQ(read("{a: 1, b_2: 2e8, 'c d': 3}"), R"({"a":1,"b_2":2e+08,"c d":3})");
  EXPECT_EQ(read("{\n a: some words, and a comma # part of it\n b: x\n}"),
            R"({"a":"some words, and a comma # part of it","b":"x"})");
  EXPECT_EQ(read("{a: true, b: false // no\n c: null}"), R"({"a":true,"b":false,"c":null})");
  EXPECT_EQ(read("{a: truely\n b: 12 apples\n c: 007\n d: -\n e: 1.\n}"),
            R"({"a":"truely","b":"12 apples","c":"007","d":"-","e":"1."})");
  EXPECT_EQ(read("{a: -0.5e-3, b: 5 /* five */, c: 10}"), R"({"a":-5e-04,"b":5,"c":10})");
  EXPECT_EQ(read("{path: /data/nvme\n next: 1}"), R"({"path":"/data/nvme","next":1})");
}

TEST(JsonLenient, RootWithoutBraces) {
  EXPECT_EQ(read("train_batch_size: 8\nfp16: {enabled: true}\n"), R"({"train_batch_size":8,"fp16":{"enabled":true}})");
  EXPECT_EQ(read("\"a\": 1, b: 2"), R"({"a":1,"b":2})");
  EXPECT_EQ(read("[1, 2]"), "[1,2]");
  EXPECT_EQ(read("\"text\""), "\"text\"");
  EXPECT_EQ(read("12"), "12");
}

TEST(JsonLenient, Strings) {
  EXPECT_EQ(read(R"({a: "x\n\u00e9", b: 'it\'s "so"'})"), "{\"a\":\"x\\n\xC3\xA9\",\"b\":\"it's \\\"so\\\"\"}");
  EXPECT_EQ(read("{\n  a: '''\n     two\n       lines\n     '''\n}"), R"({"a":"two\n  lines"})");
  EXPECT_EQ(read("{a: '''one line''', b: 1}"), R"({"a":"one line","b":1})");
  EXPECT_EQ(read("{a: '', b: \"\"}"), R"({"a":"","b":""})");
}

TEST(JsonLenient, ValuesKnowWhereTheyStand) {
  const Value root = parse_hjson(
      "# first\nzero_optimization:\n{\n  stage: 2 // two\n  'text': '''\n   a\n   b'''\n  last: [1\n 2]\n}\n",
      "ds.json");
  const Value& zero = root.at("zero_optimization");
  EXPECT_EQ(root.where().str(), "ds.json:2:1");
  EXPECT_EQ(zero.where().str(), "ds.json:2:1");  // the key's location, on another line than the value
  EXPECT_EQ(zero.at("stage").where().str(), "ds.json:4:10");
  EXPECT_EQ(zero.at("text").where().str(), "ds.json:5:11");
  EXPECT_EQ(zero.at("last").items()[1].where().str(), "ds.json:9:2");
}

TEST(JsonLenient, Refused) {
  EXPECT_EQ(problem("{\"a\": 1,\n\"b\": 2,\n \"a\": 3}"),
            "a.hjson:3:7: the key \"a\" appears twice (first at a.hjson:1:7); keep one of them");
  EXPECT_EQ(problem("a: 1\nb: 2\na: 3"),
            "a.hjson:3:4: the key \"a\" appears twice (first at a.hjson:1:4); keep one of them");
  EXPECT_EQ(problem("{\"a\": \"x\" \"b\": 1}"),
            "a.hjson:1:11: expected ',', '}' or a new line in an object, found '\"'");
  EXPECT_EQ(problem("[\"a\" \"b\"]"), "a.hjson:1:6: expected ',', ']' or a new line in an array, found '\"'");
  EXPECT_EQ(problem("{a b: 1}"), "a.hjson:1:4: expected ':' after the key \"a\", found 'b'");
  EXPECT_EQ(problem("{a: }"), "a.hjson:1:5: expected a value, found '}'");
  EXPECT_EQ(problem("{a: 1"),
            "a.hjson:1:1: an object that begins here never ends (unquoted text extends to the end of its line)");
  EXPECT_EQ(problem("{a: 1, b: {c: cpu }}"),
            "a.hjson:1:11: an object that begins here never ends (unquoted text extends to the end of its line)");
  EXPECT_EQ(problem("a: [1,"),
            "a.hjson:1:4: an array that begins here never ends (unquoted text extends to the end of its line)");
  EXPECT_EQ(problem("{,}"), "a.hjson:1:2: expected a key, found ','");
  EXPECT_EQ(problem("{a: 1,, b: 2}"), "a.hjson:1:7: expected a key, found ','");
  EXPECT_EQ(problem(""), "a.hjson:1:1: expected a value, found the end of the file");
  EXPECT_EQ(problem("{} x"), "a.hjson:1:4: expected the end of the file after the value, found 'x'");
  EXPECT_EQ(problem("{a: \"x"), "a.hjson:1:5: a string that begins here never ends");
  EXPECT_EQ(problem("{a: '''x''"), "a.hjson:1:5: a string that begins here never ends");
  EXPECT_EQ(problem("{ /* x"), "a.hjson:1:3: a comment that begins here never ends");
  EXPECT_EQ(problem("{a: \"\n\"}"),
            "a.hjson:1:6: control characters in strings must be escaped, found control character 10");
  EXPECT_EQ(problem("{a: \"\\'\"}"), "a.hjson:1:7: unknown escape in a string, found '''");
  EXPECT_EQ(problem("{a: 1e999}"), "a.hjson:1:5: a number beyond the range of double, found '1'");
  EXPECT_EQ(problem("{a: \xFF}"), "a.hjson:1:5: not valid UTF-8");
  EXPECT_EQ(problem(std::string(300, '[')), "a.hjson:1:258: nested deeper than 256, found '['");
}

// Every JSON text has the same meaning in HJSON.
RC_GTEST_PROP(JsonLenient, JsonIsAPartOfIt, ()) {
  Value value = Value::of(*rc::gen::arbitrary<std::int64_t>());
  const int depth = *rc::gen::inRange(0, 5);
  for (int i = 0; i < depth; ++i) {
    const std::string key = concat("k", *rc::gen::inRange(0, 100),
                                   *rc::gen::element(std::string("\""), std::string("\n"), std::string("é")));
    if (*rc::gen::arbitrary<bool>()) {
      value = Value::make_object({{key, value}, {"r", Value::of(0.25 * *rc::gen::inRange(-9, 9))}, {"n", Value()}});
    } else {
      value = Value::make_array({value, Value::of(key), Value::of(true)});
    }
  }
  const std::string text = dump_json(value, *rc::gen::element(-1, 2));
  RC_ASSERT(dump_json(parse_hjson(text, "x")) == dump_json(parse_json(text, "x")));
}

// Any text of a megabyte is read or refused in linear time.
TEST(JsonLenient, HostileFiles) {
  const auto repeated = [](std::string_view part, std::size_t size) {
    std::string out;
    while (out.size() < size) out += part;
    return out;
  };
  const auto texts = [&](std::size_t size) {
    const auto all = [&](std::string_view part) { return repeated(part, size); };
    std::string keys = "{";
    for (int i = 0; keys.size() < size; ++i) keys += concat("k", i, ":1,");
    return std::vector<std::string>{all("["),
                                    all("{a:"),
                                    "[" + all("1,") + "]",
                                    keys + "}",
                                    "{a: " + all("1") + "}",
                                    "{a: " + all("1x,") + "}",
                                    "{a: \"" + all("x") + "\"}",
                                    all("/*"),
                                    all("# \n"),
                                    "[" + all("'''"),
                                    all("a"),
                                    all("{a:'''")};
  };
  const auto small = texts(125'000), large = texts(1'000'000);
  for (std::size_t i = 0; i < large.size(); ++i) {
    std::string said;
    EXPECT_LE(testing::growth([&] { said = problem(small[i]); }, [&] { said = problem(large[i]); }),
              testing::linear_growth)
        << large[i].substr(0, 20) << "... " << said.substr(0, 100);
  }
  EXPECT_EQ(problem("[" + repeated("1,", 1'000'000) + "]"), "a.hjson:1:20000: more than 10000 values, found '1'");
}

}  // namespace
}  // namespace tessera
