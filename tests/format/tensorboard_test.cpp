#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/tensorboard.h>

namespace tessera::format {
namespace {

constexpr double some_time = 1700000000.5;

std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

// The expected bytes were written by the Python package tensorboard 2.20 (its own protocol buffers and RecordWriter).
TEST(TensorBoard, VersionAsTensorBoardWritesIt) {
  EXPECT_EQ(hex(tfrecord(version_event(some_time))),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
}

TEST(TensorBoard, ScalarsAsTensorBoardWritesThem) {
  EXPECT_EQ(hex(tfrecord(scalar_event(some_time, 300,
                                      std::vector<Scalar>{{"train/loss", 3.25}, {"train/learning_rate", 3e-4}}))),
            "3d000000000000006049f1ec0900002040fc54d94110ac022a2f0a110a0a747261696e2f6c6f737315000050400a1a0a13747261"
            "696e2f6c6561726e696e675f726174651552499d390e4bb48a");
}

TEST(TensorBoard, TextAsTensorBoardWritesIt) {
  EXPECT_EQ(hex(tfrecord(text_event(some_time, 7, "sample/text_summary", "größe\n"))),
            "420000000000000079f36eaa0900002040fc54d94110072a350a330a1373616d706c652f746578745f73756d6d61727942120807"
            "12041202080142086772c3b6c39f650a4a080a060a0474657874f3e7a7f8");
}

TEST(TensorBoard, StartAsTensorBoardWritesIt) {
  EXPECT_EQ(hex(tfrecord(start_event(some_time, 41))),
            "0f000000000000006d532b090900002040fc54d94110293a0208016a885b5d");
}

TEST(TensorBoard, AFileIsTheRecordsOneAfterTheOther) {
  const TemporaryFolder folder;
  std::string path;
  {
    EventFile file(path_join(folder.path(), "runs/a"), some_time, 5);
    path = file.path();
    file.scalars(some_time, 6, std::vector<Scalar>{{"train/loss", 1.5}});
    file.text(some_time, 6, "note/text_summary", "hello");
  }
  EXPECT_NE(path.find("/runs/a/events.out.tfevents.1700000000."), std::string::npos) << path;
  EXPECT_EQ(read_file(path), tfrecord(version_event(some_time)) + tfrecord(start_event(some_time, 5)) +
                                 tfrecord(scalar_event(some_time, 6, std::vector<Scalar>{{"train/loss", 1.5}})) +
                                 tfrecord(text_event(some_time, 6, "note/text_summary", "hello")));
}

TEST(TensorBoard, ASecondFileOfTheSameSecondHasItsOwnName) {
  const TemporaryFolder folder;
  const EventFile first(folder.path(), some_time, 0), second(folder.path(), some_time, 0);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(list_folder(folder.path()).size(), 2u);
}

TEST(TensorBoard, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  write_file_atomically(path_join(folder.path(), "file"), "");
  try {
    EventFile(path_join(folder.path(), "file/runs"), some_time, 0);
    FAIL() << "a file is not a folder";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file/runs"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::format
