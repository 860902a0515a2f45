#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/csv_log.h>

#include <algorithm>

namespace tessera::train {
namespace {

using Points = std::vector<std::pair<std::string, double>>;

TEST(CsvLog, OneLinePerLogUnderOneHeader) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.csv");
  {
    CsvLog log(path, -1);
    log.append(1700000000.25, 1, Points{{"loss", 2.5}, {"epoch", 0.125}});
    log.append(1700000001, 2, Points{{"eval_loss", 1.0 / 3}});
    log.append(1700000002, 3, Points{{"rewards/chosen", 5}, {"loss", 2}});  // a value of preference training
  }
  const std::vector<std::string> lines = split(read_file(path), '\n');
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], CsvLog::header());
  EXPECT_TRUE(lines[1].starts_with("1,1700000000.25,0.125,2.5,,,")) << lines[1];
  EXPECT_NE(lines[2].find(",0.333333333,,"), std::string::npos) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("3,1700000002,,2,,")) << lines[3];
  EXPECT_EQ(lines[3].find('5'), std::string::npos) << "it has no column";
  for (const std::string& line : {lines[1], lines[2], lines[3]})
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), std::count(lines[0].begin(), lines[0].end(), ',')) << line;
}

TEST(CsvLog, AResumedOneKeepsWhatIsNotMeasuredAgain) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.csv");
  {
    CsvLog log(path, -1);
    for (int step = 1; step <= 4; ++step) log.append(step, step, Points{{"loss", step}});
  }
  write_file_atomically(path, read_file(path) + "2,17");  // an incomplete line
  {
    CsvLog log(path, 2);
    log.append(9, 3, Points{{"loss", 9}});
  }
  std::vector<std::string> steps;
  for (const std::string& line : split(read_file(path), '\n')) steps.push_back(line.substr(0, line.find(',')));
  EXPECT_EQ(steps, (std::vector<std::string>{"step", "1", "2", "3", ""}));
}

TEST(CsvLog, RowsOfAnOlderVersionStayUnderTheirColumns) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.csv");
  write_file_atomically(path, "step,loss,wall_time\n1,2.5,17\n2,2.25,18\n3,2,19\n");
  CsvLog(path, 2).append(20, 3, Points{{"eval_loss", 7}, {"loss", 1.5}});
  EXPECT_EQ(read_file(path), "step,loss,wall_time\n1,2.5,17\n2,2.25,18\n3,1.5,20\n");
}

TEST(CsvLog, ASpreadsheetsEndsOfLinesAreNoPartOfTheLastColumn) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.csv");
  write_file_atomically(path, "step,wall_time,loss\r\n1,17,2.5\r\n");
  CsvLog(path, 1).append(18, 2, Points{{"loss", 2.25}});
  EXPECT_EQ(read_file(path), "step,wall_time,loss\n1,17,2.5\r\n2,18,2.25\n");
}

TEST(CsvLog, AnotherFileIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.csv");
  write_file_atomically(path, "other,columns\n1,2\n");
  EXPECT_THROW(CsvLog(path, 2), InputError);
  EXPECT_EQ(read_file(path), "other,columns\n1,2\n");
  for (const char* text : {"other,columns", "\x01\xff binary", "step,other"}) {  // without a newline at the end
    write_file_atomically(path, text);
    EXPECT_THROW(CsvLog(path, 2), InputError) << text;
    EXPECT_EQ(read_file(path), text);
  }
  write_file_atomically(path, "step,wall");  // a header truncated by a power failure
  CsvLog(path, 2);
  EXPECT_EQ(read_file(path), concat(CsvLog::header(), "\n"));
}

}  // namespace
}  // namespace tessera::train
