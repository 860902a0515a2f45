#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/corpus/columns.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using testing::error_of;

Value record(const std::string& json) { return parse_json(json, "a.jsonl"); }

/// The normal form of a record that is the first of its dataset.
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
      << "a prompt without completion is one column among others (ultrachat has it)";
}

TEST(Columns, PromptAndCompletionAsMessages) {
  EXPECT_EQ(
      normal(
          R"({"prompt": [{"role": "user", "content": "x"}], "completion": [{"role": "assistant", "content": "y"}]})"),
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]})");
}

TEST(Columns, ShareGpt) {
  EXPECT_EQ(normal(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                      {"from": "function_call", "value": "{}"}, {"from": "observation", "value": "3"}]})"),
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"assistant","content":"{}"},{"role":"tool","content":"3"}]})");
  EXPECT_EQ(normal(R"({"system": "s", "conversations": [{"role": "user", "content": "a"}]})"),
            R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]})");
  EXPECT_EQ(normal(R"({"system": null, "conversations": []})"), R"({"messages":[]})");
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
  EXPECT_EQ(columns.needed(), (std::vector<std::string>{"q", "a"}));
  EXPECT_EQ(columns.form(), RecordForm::prompt_completion);
  EXPECT_EQ(Columns(record(R"({"instruction": "x", "output": "y"})"), {}).note(), "reads instruction, output (Alpaca)");
}

TEST(Columns, Complaints) {
  EXPECT_EQ(
      complaint(R"({"text": "x", "messages": []})"),
      "a.jsonl:1:1: its columns say several things: text and also messages; choose with --dataset_text_field NAME "
      "or --column_map, such as messages=messages");
  EXPECT_EQ(
      complaint(R"({"question": "x", "answer": "y"})"),
      "a.jsonl:1:1: the columns are question, answer: none is known by its name; known are text; prompt and "
      "completion; messages; conversations (ShareGPT); instruction, input and output (Alpaca); say which is which: "
      "--column_map prompt=question,completion=answer");
  EXPECT_NE(complaint(R"({"body": "x", "n": 1})").find("if this is the text: --dataset_text_field body"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"prompt": "x"})").find("the columns are prompt: prompt without completion"),
            std::string::npos);
  EXPECT_EQ(complaint(R"({"a": 1})", {"b", {}}), "a.jsonl:1:1: has no column \"b\" (for text); it has a");
  EXPECT_EQ(complaint(R"({"a": 1})", {"a", {{"text", "a"}}}),
            "--dataset_text_field and --column_map both say what the columns mean: keep one of them");
  EXPECT_EQ(complaint(R"({"a": 1, "b": 2})", mapped("text=a,system=b")),
            "--column_map: system does not belong to text");
}

TEST(Columns, ARecordThatLacksAColumnIsNamed) {
  const Columns columns(record(R"({"text": "x"})"), {});
  EXPECT_EQ(error_of([&] { columns.normal(record(R"({"test": "x"})")); }),
            error_of([&] { record(R"({"test": "x"})").at("text"); }));
}

TEST(ColumnMap, Complaints) {
  EXPECT_EQ(error_of([] { parse_column_map("prompt"); }),
            "--column_map: 'prompt' is not MEANING=COLUMN, such as prompt=question");
  EXPECT_EQ(error_of([] { parse_column_map("question=prompt"); }),
            "--column_map: 'question' is no meaning of a column; there are text, prompt, completion, messages, "
            "conversations, system, instruction, output, input; did you mean prompt=question?");
  EXPECT_EQ(error_of([] { parse_column_map("text=a,text=b"); }), "--column_map: text is both a and b");
}

}  // namespace
}  // namespace tessera::corpus
