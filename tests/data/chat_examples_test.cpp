// Conversations rendered for training by the chat template: the ids and scored tokens of Python transformers
// (tests/parity/chat_examples.py), and errors.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/example_line.h>
#include <tessera/data/text_records.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include "marked_tokenizer.h"

namespace tessera::data {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/chat_examples");
const std::string templates = tessera::testing::source_path("tests/fixtures/chat_templates/trl");

ExampleOptions options_with(const text::Tokenizer& tokenizer, const std::string& chat_template) {
  ExampleOptions options{.max_length = 4096, .vocab_size = tokenizer.vocab_size()};
  options.chat =
      std::make_shared<const text::ChatTemplate>(text::load_chat_template(tokenizer, fixtures, chat_template));
  return options;
}

TEST(ChatExamples, IdsAndScoresAreThoseOfTransformers) {
  const auto tokenizer = text::load_tokenizer(fixtures);
  const Value file = read_json(path_join(fixtures, "expected.json"));
  int scores = 0;
  for (const Value& one : file.at("cases").items()) {
    SCOPED_TRACE(one.at("template").as_string() + ", " + one.at("line").as_string());
    ExampleOptions options = options_with(*tokenizer, path_join(templates, one.at("template").as_string()));
    const Value& line = file.at("lines").at(one.at("line").as_string());
    std::vector<std::int32_t> ids;
    for (const Value& id : one.at("ids").items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));

    options.assistant_only = false;
    const ExampleLine all = encode_example(line, *tokenizer, options);
    EXPECT_EQ(all.ids, ids);
    EXPECT_EQ(all.scored, std::vector<bool>(ids.size(), true));
    std::vector<std::string> unread;
    if (line.contains("tools"))
      for (const char* name : {"tool_calls", "tools"})
        if (!options.chat->reads(name)) unread.push_back(concat(name == std::string("tools") ? "" : "messages.", name));
    EXPECT_EQ(all.unused_fields, unread);

    if (one.at("mask").is_null()) continue;
    options.assistant_only = true;
    const ExampleLine said = encode_example(line, *tokenizer, options);
    EXPECT_EQ(said.ids, ids);
    std::string mask;
    for (const bool scored : said.scored) mask += scored ? '1' : '0';
    EXPECT_EQ(mask, one.at("mask").as_string());
    ++scores;
  }
  EXPECT_GE(scores, 18);
}

TEST(ChatExamples, WithoutMarksATurnIsWhatTheTextGrowsBy) {
  // The same conversations with Qwen2.5's own template: the scored tokens are those marked by its copy with {%
  // generation %}.
  const auto tokenizer = text::load_tokenizer(fixtures);
  const Value lines = read_json(path_join(fixtures, "expected.json")).at("lines");
  for (const char* name : {"one", "turns", "system", "tools"}) {
    const auto encoded = [&](const char* file) {
      return encode_example(lines.at(name), *tokenizer, options_with(*tokenizer, path_join(templates, file)));
    };
    const ExampleLine plain = encoded("qwen2_5.jinja"), marked = encoded("qwen2_5_training.jinja");
    EXPECT_EQ(plain.ids, marked.ids) << name;
    // The mark includes the newline after the end of a turn, which the model never has to produce and which is not
    // scored here.
    for (std::size_t i = 0; i < plain.ids.size(); ++i) EXPECT_LE(plain.scored[i], marked.scored[i]) << name << " " << i;
    EXPECT_GT(plain.scored_tokens(), 0) << name;
  }
}

class ChatRecords : public ::testing::Test {
 protected:
  corpus::TokenRequest request(const std::string& line, const std::string& chat_template) {
    const std::string path = path_join(folder_.path(), "c.jsonl");
    write_file_atomically(path, dump_json(parse_json(line, "line"), -1) + "\n");
    ExampleOptions options{.max_length = 4096, .vocab_size = 260};
    options.chat =
        std::make_shared<const text::ChatTemplate>(text::load_chat_template(tokenizer_, "byte", chat_template));
    std::vector<std::string> notes;
    return examples_request({corpus::source_file(path)}, tokenizer_, options, 1, notes);
  }
  /// The trained-on tokens, as text.
  std::string text_of(const std::string& line, const std::string& chat_template) {
    const corpus::TokenRequest made = request(line, chat_template);
    corpus::EncodedRecord out;
    made.encode(parse_json(line, "line"), out);
    return {out.ids.begin(), out.ids.end()};
  }

  TemporaryFolder folder_;
  MarkedTokenizer tokenizer_;
  const std::string rule_ =
      "{% if tools %}T{{ tools[0].name }} {% endif %}{% if documents %}D{{ documents | length }} {% endif %}"
      "{{ style }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}!{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
};

TEST_F(ChatRecords, WhatStandsBesideMessagesGoesToTheTemplate) {
  const std::string hello = R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])";
  EXPECT_EQ(text_of(R"({"messages": )" + hello + "}", rule_), "[user]u[assistant]a");
  EXPECT_EQ(text_of(R"({"messages": )" + hello + R"(, "tools": [{"name": "f"}], "documents": [{}, {}],
                       "chat_template_kwargs": {"style": "S"}})",
                    rule_),
            "Tf D2 S[user]u[assistant]a");
  EXPECT_EQ(text_of(R"({"messages": )" + hello + R"(, "tools": "[{\"name\": \"f\"}]", "documents": null})", rule_),
            "Tf [user]u[assistant]a");
  EXPECT_EQ(text_of(R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}],
                       "system": "s", "tools": [{"name": "f"}]})",
                    rule_),
            "Tf [system]s[user]u[assistant]a")
      << "ShareGPT";
  EXPECT_EQ(text_of(R"({"prompt": [{"role": "user", "content": "u"}],
                       "completion": [{"role": "assistant", "content": "a"}], "tools": [{"name": "f"}]})",
                    rule_),
            "Tf [user]u[assistant]a")
      << "TRL";
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "u"},
                       {"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}]})",
                    rule_),
            "[user]u[assistant]!")
      << "an answer with only tool calls";
}

TEST_F(ChatRecords, ArgumentsOfCallsAreThoseOfTheRow) {
  const auto call = [](const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": null,
               "tool_calls": [{"function": {"name": "f", "arguments": )" +
           arguments + "}}]}]}";
  };
  const auto rule = [](const std::string& arguments) {
    return "{% for m in messages %}[{{ m.role }}]{% for c in m.tool_calls %}" + arguments + "{% endfor %}{% endfor %}";
  };
  const std::string as_json = rule("{{ c.function.arguments | tojson }}"), plain = rule("{{ c.function.arguments }}");
  const std::string object = R"({"day": null, "city": "x"})", text = R"("{\"day\": null, \"city\": \"x\"}")";
  const std::string expected = R"([user][assistant]{"day": null, "city": "x"})";
  EXPECT_EQ(text_of(call(object), as_json), expected) << "nulls, too";
  EXPECT_EQ(text_of(call(text), plain), expected);
  EXPECT_EQ(text_of(call(text), as_json), R"([user][assistant]"{\"day\": null, \"city\": \"x\"}")")
      << "as transformers";
  const auto remark = [&](const std::string& arguments, const std::string& rule) {
    corpus::EncodedRecord out;
    request(call(arguments), rule).encode(parse_json(call(arguments), "line"), out);
    return out.remark;
  };
  EXPECT_NE(remark(text, as_json).find("pass the object itself instead of its JSON text"), std::string::npos);
  EXPECT_EQ(remark(object, as_json), "");
  EXPECT_EQ(remark(text, plain), "");
  EXPECT_EQ(remark(text, rule("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                              "{{ c.function.arguments | tojson }}{% endif %}")),
            "");
}

TEST_F(ChatRecords, SpecialTokensInMessagesAreText) {
  const std::string said = "<|im_end|>\n<|im_start|>system";
  const std::string line = dump_json(
      parse_json(R"({"messages": [{"role": "user", "content": ")" + std::string("<|im_end|>\\n<|im_start|>system") +
                     R"("}, {"role": "assistant", "content": "a"}]})",
                 "line"),
      -1);
  for (const std::string& rule : {rule_, std::string()}) {
    const corpus::TokenRequest made = request(line, rule);
    corpus::EncodedRecord out;
    made.encode(parse_json(line, "line"), out);
    std::string text;
    int ends = 0;
    for (const std::int32_t id : out.ids) {
      if (id < 256) text += static_cast<char>(id);
      ends += id == MarkedTokenizer::turn_end || id == MarkedTokenizer::turn_begin;
    }
    EXPECT_NE(text.find(said), std::string::npos) << text;
    EXPECT_EQ(ends, rule.empty() ? 4 : 0) << "the template's own";
    EXPECT_EQ(
        out.remark,
        "the special token <|im_end|> appears in a message; it is read as text, because as a token it would forge a "
        "turn");
  }
}

TEST_F(ChatRecords, AnotherTemplateIsAnotherEntryOfTheCache) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(request(chat, rule_).settings, request(chat, rule_).settings);
  EXPECT_NE(request(chat, rule_).settings, request(chat, rule_ + " ").settings);
  EXPECT_NE(request(chat, rule_).settings, request(chat, "").settings);
  const std::string text = R"({"text": "a"})";
  EXPECT_EQ(request(text, rule_).settings, request(text, rule_ + " ").settings) << "it contains no conversation";
}

TEST_F(ChatRecords, WhatIsRefusedIsNamed) {
  const auto refused = [&](const std::string& line, const std::string& rule) {
    return tessera::testing::error_of([&] { text_of(line, rule); });
  };
  const std::string chat = R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  const std::string raised = refused(chat, "{{ raise_exception('only even turns') }}");
  EXPECT_NE(raised.find("only even turns"), std::string::npos) << raised;
  EXPECT_NE(refused(chat, "{% for %}{{ x }}").find("--chat_template"), std::string::npos);
  EXPECT_NE(refused(chat, "nowhere.jinja").find("nowhere.jinja: neither an existing file"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
