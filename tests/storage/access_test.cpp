#include <gtest/gtest.h>

#include <map>

#include <tessera/base/file.h>
#include <tessera/storage/access.h>
#include <tests/error_of.h>

namespace tessera::storage {
namespace {

using testing::error_of;

class AccessTest : public ::testing::Test {
 protected:
  Access read() const {
    return read_access([this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }
  void write(const std::string& name, const std::string& text) {
    make_folders(folder_.path() + "/.aws");
    write_file_atomically(folder_.path() + "/.aws/" + name, text);
  }
  TemporaryFolder folder_;
  std::map<std::string, std::string> variables_{{"HOME", folder_.path()}};
};

TEST_F(AccessTest, FromVariables) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "hush";
  Access access = read();
  EXPECT_EQ(access.endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_FALSE(access.path_style);
  variables_["AWS_SESSION_TOKEN"] = "token";
  variables_["AWS_DEFAULT_REGION"] = "eu-west-1";
  variables_["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9000/";
  variables_["AWS_MAX_ATTEMPTS"] = "3";
  access = read();
  EXPECT_EQ(access.endpoint, "http://127.0.0.1:9000");
  EXPECT_TRUE(access.path_style);
  EXPECT_EQ(access.region, "eu-west-1");
  EXPECT_EQ(access.key_id + access.secret + access.token, "idhushtoken");
  EXPECT_EQ(access.attempts, 3);
  variables_["AWS_ENDPOINT_URL_S3"] = "https://s3.example";
  EXPECT_EQ(read().endpoint, "https://s3.example");
}

TEST_F(AccessTest, FromFiles) {
  write("credentials",
        "# ours\n[default]\naws_access_key_id = a\naws_secret_access_key=b=c\n\n[ci]\naws_access_key_id=d\n"
        "aws_secret_access_key=e\naws_session_token = f\n");
  write(
      "config",
      "[default]\nregion = eu-north-1\ns3 =\n    region = no\n[profile ci]\nregion = x1\nendpoint_url = http://h:1\n");
  EXPECT_EQ(read().secret, "b=c");
  EXPECT_EQ(read().region, "eu-north-1");
  EXPECT_EQ(read().endpoint, "https://s3.eu-north-1.amazonaws.com");
  variables_["AWS_PROFILE"] = "ci";
  EXPECT_EQ(read().key_id + read().secret + read().token, "def");
  EXPECT_EQ(read().endpoint, "http://h:1");
  variables_["AWS_ACCESS_KEY_ID"] = "v";
  variables_["AWS_SECRET_ACCESS_KEY"] = "w";
  EXPECT_EQ(read().key_id + read().token, "v") << "variables have priority, and sources are not mixed";
}

TEST_F(AccessTest, WhatIsWrongIsToldWithoutSecrets) {
  EXPECT_NE(error_of([&] { read(); }).find("no credentials for s3:// found"), std::string::npos);
  write("credentials", "[default]\naws_access_key_id = a\nhush-hush\n");
  const std::string line = error_of([&] { read(); });
  EXPECT_NE(line.find("credentials:3: expected KEY = VALUE"), std::string::npos) << line;
  EXPECT_EQ(line.find("hush"), std::string::npos) << line;
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  write("credentials", "");
  EXPECT_NE(error_of([&] { read(); }).find("AWS_SECRET_ACCESS_KEY is not"), std::string::npos);
  variables_["AWS_SECRET_ACCESS_KEY"] = "hush";
  for (const char* endpoint : {"ftp://x", "http://", "s3.example", "http://user@host", "http://a b", "http://h/?x"}) {
    variables_["AWS_ENDPOINT_URL"] = endpoint;
    EXPECT_NE(error_of([&] { read(); }).find("is not of the form https://HOST[:PORT]"), std::string::npos) << endpoint;
  }
  variables_.erase("AWS_ENDPOINT_URL");
  variables_["AWS_MAX_ATTEMPTS"] = "0";
  EXPECT_NE(error_of([&] { read(); }).find("AWS_MAX_ATTEMPTS"), std::string::npos);
}

}  // namespace
}  // namespace tessera::storage
