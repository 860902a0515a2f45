#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/corpus/columns.h>
#include <tessera/corpus/left_out.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using testing::error_of;

Value record(const std::string& json) { return parse_json(json, "a.jsonl"); }

/// The normal form of the first record of a dataset.
std::string normal(const std::string& json, const ColumnOptions& options = {}) {
  const Value first = record(json);
  return dump_json(Columns(first, options).normal(first), -1);
}

std::string complaint(const std::string& json, const ColumnOptions& options = {}) {
  return error_of([&] { Columns(record(json), options); });
}

ColumnOptions mapped(const std::string& map) { return {"", parse_column_map(map)}; }

TEST(Columns, NormalFormsStayAsTheyAre) {
  EXPECT_EQ(normal(R"({"id": 1, "text": "x"})"), R"({"text":"x"})");
  EXPECT_EQ(normal(R"({"completion": "y", "prompt": "x"})"), R"({"prompt":"x","completion":"y"})");
  EXPECT_EQ(normal(R"({"messages": [{"role": "user", "content": "x"}], "prompt": "x"})"),
            R"({"messages":[{"role":"user","content":"x"}]})")
      << "a prompt without completion is an ordinary column (as in ultrachat)";
}

TEST(Columns, PromptAndCompletionAsMessages) {
  const std::string expected =
      R"({"prompt":[{"role":"user","content":"x"}],"completion":[{"role":"assistant","content":"y"}]})";
  EXPECT_EQ(normal(expected), expected);
  EXPECT_EQ(normal(R"({"prompt": "x", "completion": [{"from": "gpt", "value": "y"}]})"), expected);
  EXPECT_EQ(normal(R"({"prompt": [{"role": "user", "content": "x"}], "completion": "y"})"), expected);
  EXPECT_EQ(normal(R"({"prompt": [], "completion": "y", "system": "s", "tools": [{"name": "f"}], "documents": null})"),
            R"({"prompt":[{"role":"system","content":"s"}],"completion":[{"role":"assistant","content":"y"}],)"
            R"("tools":[{"name":"f"}]})");
}

TEST(Columns, WhatSomebodyMadeOfOtherColumnsIsNotUsed) {
  const auto unused = [](const std::string& json) {
    std::vector<std::string> names;
    Columns({}).normal(record(json), &names);
    return join(names);
  };
  const std::string hello = R"("messages": [{"role": "user", "content": "x"}])";
  EXPECT_EQ(normal("{" + hello + R"(, "text": "x", "prompt": "x"})"),
            R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(unused("{" + hello + R"(, "text": "x", "prompt": "x"})"), "text, prompt");
  EXPECT_EQ(normal(R"({"prompt": "x", "completion": "y", "text": "xy"})"), R"({"prompt":"x","completion":"y"})");
  EXPECT_EQ(normal(R"({"prompt": "x", "text": "xy"})"), R"({"text":"xy"})");
  EXPECT_EQ(unused(R"({"prompt": "x", "text": "xy"})"), "prompt");
  EXPECT_EQ(unused(R"({"instruction": "x", "input": "", "output": "y", "text": "xy"})"), "text") << "Alpaca";
  EXPECT_EQ(unused(R"({"conversations": [{"from": "gpt", "value": "y", "weight": 0, "loss": null}], "id": 1})"),
            "conversations.weight, id");
  EXPECT_EQ(normal(R"({"input_ids": [1], "labels": [1], "text": "x", )" + hello + "}"),
            R"({"input_ids":[1],"labels":[1]})");
}

/// In tables every row has all columns, so the first row does not determine the kind of the others.
TEST(Columns, EachRecordSaysWhatItIs) {
  const Columns columns(record(R"({"prompt": "x", "completion": "y", "messages": null})"), {});
  EXPECT_EQ(dump_json(columns.normal(record(R"({"prompt": null, "completion": null, "messages": [{"role": "user",
                                               "content": "x"}], "tools": [{"name": "f"}]})")),
                      -1),
            R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}]})");
  for (const char* empty :
       {R"({"text": null})", R"({"prompt": "x", "completion": null, "text": null})", R"({"messages": []})",
        R"({"instruction": null, "output": "y"})", R"({"input_ids": [1], "labels": null})"})
    EXPECT_THROW(columns.normal(record(empty)), LeftOut) << empty;
}

TEST(Columns, NullsThatATableAddsAreGone) {
  const std::string call =
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments":
         {"city": "x", "day": null}}]}]})";
  ColumnOptions options;
  EXPECT_NE(normal(call, options).find(R"("day":null)"), std::string::npos) << "a null of a .jsonl is kept";
  options.nulls_are_missing = true;
  EXPECT_EQ(normal(call, options),
            R"({"messages":[{"role":"assistant","tool_calls":[{"name":"f","arguments":{"city":"x"}}]}]})");
}

TEST(Columns, PairsOfAnswers) {
  const auto pair = [](const std::string& json, const std::string& map = "") {
    ColumnOptions options{.map = map.empty() ? decltype(ColumnOptions::map)() : parse_column_map(map), .pairs = true};
    return normal(json, options);
  };
  const std::string texts = R"({"prompt":"q","chosen":"y","rejected":"n"})";
  EXPECT_EQ(pair(texts), texts);
  EXPECT_EQ(pair(R"({"question": "q", "chosen": "y", "rejected": "n"})"), texts);
  EXPECT_EQ(pair(R"({"q": "q", "chosen": "y", "bad": "n"})", "prompt=q,rejected=bad"), texts);
  EXPECT_EQ(pair(
                R"({"chosen": "\n\nHuman: hi\n\nAssistant: I say yes",
                    "rejected": "\n\nHuman: hi\n\nAssistant: I say yet"})"),
            R"({"prompt":"\n\nHuman: hi\n\nAssistant: I say","chosen":" yes","rejected":" yet"})")
      << "hh-rlhf; words are not split";
  EXPECT_EQ(pair(R"({"chosen": "a: yes", "rejected": "a: yes sir"})"),
            R"({"prompt":"a:","chosen":" yes","rejected":" yes sir"})");
  EXPECT_EQ(pair(R"({"chosen": "问：好", "rejected": "问：不"})"),
            R"({"prompt":"问：","chosen":"好","rejected":"不"})");

  const std::string lists =
      R"({"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"y"}],)"
      R"("rejected":[{"role":"assistant","content":"n"}]})";
  EXPECT_EQ(pair(lists), lists);
  EXPECT_EQ(pair(R"({"prompt": "q", "chosen": {"role": "assistant", "content": "y"}, "rejected": "n"})"), lists);
  EXPECT_EQ(pair(R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "y"},
                    "rejected": {"from": "gpt", "value": "n"}})"),
            lists);
  const std::string q = R"({"role": "user", "content": "q"}, )";
  const std::string both = R"("chosen": [)" + q + R"({"role": "assistant", "content": "y"}], "rejected": [)" + q +
                           R"({"role": "assistant", "content": "n"}])";
  for (const char* prompt : {"", R"("prompt": "q", )", R"("prompt": [{"role": "user", "content": "q"}], )"})
    EXPECT_EQ(pair("{" + std::string(prompt) + both + "}"), lists) << prompt;
  EXPECT_EQ(pair(R"({"system": "s", "tools": [{"name": "f"}], )" + both + "}"),
            R"({"prompt":[{"role":"system","content":"s"},{"role":"user","content":"q"}],)"
            R"("chosen":[{"role":"assistant","content":"y"}],"rejected":[{"role":"assistant","content":"n"}],)"
            R"("tools":[{"name":"f"}]})");

  const Columns columns({.pairs = true});
  for (const char* empty :
       {R"({"prompt": "q", "chosen": "y", "rejected": ""})", R"({"prompt": "q", "chosen": null, "rejected": "n"})",
        R"({"chosen": "y", "rejected": "y"})", R"({"prompt": [], "chosen": [], "rejected": []})"})
    EXPECT_THROW(columns.normal(record(empty)), LeftOut) << empty;
}

TEST(Columns, ShareGpt) {
  EXPECT_EQ(normal(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                      {"from": "function_call", "value": "{}"}, {"from": "observation", "value": "3"}]})"),
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"assistant","content":"{}"},{"role":"tool","content":"3"}]})");
  EXPECT_EQ(normal(R"({"system": "s", "conversations": [{"role": "user", "content": "a"}]})"),
            R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]})");
  EXPECT_EQ(error_of([] { normal(R"({"conversations": [{"from": "dog", "value": "a"}]})"); }),
            "a.jsonl:1:29: unknown speaker \"dog\"; expected human, gpt, system, function_call, observation, or user, "
            "assistant, tool");
}

TEST(Columns, Alpaca) {
  EXPECT_EQ(normal(R"({"instruction": "Add.", "input": "1 2", "output": "3"})"),
            R"({"prompt":"Below is an instruction that describes a task, paired with an input that provides further )"
            R"(context. Write a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n)"
            R"(### Input:\n1 2\n\n### Response:","completion":"3"})");
  const std::string without =
      R"({"prompt":"Below is an instruction that describes a task. Write a response that appropriately completes the )"
      R"(request.\n\n### Instruction:\nAdd.\n\n### Response:","completion":"3"})";
  EXPECT_EQ(normal(R"({"instruction": "Add.", "input": "", "output": "3"})"), without);
  EXPECT_EQ(normal(R"({"instruction": "Add.", "input": null, "output": "3"})"), without);
  EXPECT_EQ(normal(R"({"instruction": "Add.", "output": "3"})"), without);
}

TEST(Columns, OptionsDecideAlone) {
  EXPECT_EQ(normal(R"({"text": "x", "content": "y"})", {"content", {}}), R"({"text":"y"})");
  EXPECT_EQ(normal(R"({"text": "t", "question": "x", "answer": "y"})", mapped("prompt=question, completion=answer")),
            R"({"prompt":"x","completion":"y"})");
  EXPECT_EQ(
      normal(R"({"chat": [{"from": "user", "value": "x"}], "sys": "s"})", mapped("conversations=chat,system=sys")),
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"x"}]})");
}

TEST(Columns, TheNoteSaysWhatIsRead) {
  const Columns columns(record(R"({"id": 1, "q": "x", "a": "y"})"), mapped("prompt=q,completion=a"));
  EXPECT_EQ(columns.note(), "reads q as prompt, a as completion; not used: id");
  EXPECT_EQ(columns.needed(), (std::vector<std::string>{"q", "a", "tools", "documents", "chat_template_kwargs"}));
  EXPECT_EQ(columns.form(), RecordForm::prompt_completion);
  EXPECT_EQ(Columns(record(R"({"instruction": "x", "output": "y"})"), {}).note(), "reads instruction, output (Alpaca)");
}

TEST(Columns, Complaints) {
  EXPECT_EQ(complaint(R"({"prompt": "x", "completion": "y", "messages": []})"),
            "a.jsonl:1:1: its columns match several forms: prompt and completion and messages; choose with "
            "--dataset_text_field NAME or --column_map, such as messages=messages");
  EXPECT_EQ(
      complaint(R"({"question": "x", "answer": "y"})"),
      "a.jsonl:1:1: the columns are question, answer: none of them is a known column; known are text; prompt and "
      "completion; messages; conversations (ShareGPT); instruction, input and output (Alpaca); input_ids and labels; "
      "specify which is which: --column_map prompt=question,completion=answer");
  EXPECT_NE(complaint(R"({"body": "x", "n": 1})").find("if this is the text: --dataset_text_field body"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"ids": [1, 2]})").find("--column_map input_ids=ids"), std::string::npos);
  EXPECT_NE(complaint(R"({"prompt": "x", "chosen": "y", "rejected": "z"})").find("--preference_loss sigmoid"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"prompt": "x"})").find("the columns are prompt: prompt without completion"),
            std::string::npos);
  EXPECT_EQ(complaint(R"({"a": 1})", {"b", {}}), "a.jsonl:1:1: has no column \"b\" (for text); it has a");
  EXPECT_EQ(complaint(R"({"a": 1})", {"a", {{"text", "a"}}}),
            "--dataset_text_field and --column_map both specify what the columns mean: keep one of them");
  EXPECT_EQ(complaint(R"({"a": 1, "b": 2})", mapped("text=a,system=b")),
            "--column_map: system does not belong to text");
}

TEST(Columns, ARecordThatLacksAColumnIsNamed) {
  const Columns columns(record(R"({"text": "x"})"), {});
  EXPECT_NE(error_of([&] { columns.normal(record(R"({"test": "x"})")); }).find("a.jsonl:1:1: the columns are test: "),
            std::string::npos);
}

TEST(ColumnMap, Complaints) {
  EXPECT_EQ(error_of([] { parse_column_map("prompt"); }),
            "--column_map: 'prompt' is not MEANING=COLUMN, such as prompt=question");
  EXPECT_EQ(error_of([] { parse_column_map("question=prompt"); }),
            "--column_map: 'question' is not a known meaning of a column; known are input_ids, labels, attention_mask, "
            "completion_mask, assistant_masks, prompt, completion, system, messages, conversations, instruction, "
            "output, input, text, chosen, rejected; did you mean prompt=question?");
  EXPECT_EQ(error_of([] { parse_column_map("text=a,text=b"); }), "--column_map: text is mapped to both a and b");
}

}  // namespace
}  // namespace tessera::corpus
