// `tundish` as a program, against a real gRPC server.
#include <filesystem>
#include <fstream>
#include <optional>
#include <unistd.h>

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"
#include "tests/client/program.h"

namespace tundish::client {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

const char kJobId[] = "01JOBAAAAAAAAAAAAAAAAAAAAA";

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "cliXXXXXX";
    folder_ = mkdtemp(pattern.data());
    v1::Job job;
    job.set_job_id(kJobId);
    job.set_state(v1::RUNNING);
    job.mutable_spec()->set_name("elpv");
    job.mutable_spec()->mutable_parallel()->set_tensor(2);
    job.mutable_spec()->mutable_parallel()->set_data(2);
    state_.SetJob(job);
    server_.emplace(state_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TUNDISH_BINARY);
    return arguments;
  }
  std::vector<std::string> Environment() { return {"TUNDISH_COORDINATOR=" + server_->address()}; }
  Outcome Tundish(std::vector<std::string> arguments) {
    return RunProgram(Command(std::move(arguments)), Environment());
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  template <class Message>
  static Message FromJson(const std::string& json) {
    Message message;
    const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
    EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
    return message;
  }

  std::string folder_;
  FakeState state_;
  std::optional<FakeCoordinator> server_;
};

TEST_F(CliTest, ExitCodesAndOneLineErrors) {
  struct Case {
    const char* name;
    std::vector<std::string> arguments;
    int code;
    std::string error;
  };
  const std::string unknown_key = Write("unknown.yaml", "name: a\ntraining:\n  epoch: 3\n");
  const std::string good = Write("good.yaml", "name: a\n");
  const Case cases[] = {
      {"no command", {}, 2, "A subcommand is required"},
      {"misspelt command", {"sumbit"}, 2, "\"sumbit\" is no command, did you mean submit?"},
      {"no file", {"submit"}, 2, "FILE is required"},
      {"unknown flag", {"list", "--frob"}, 2, "--frob"},
      {"unknown output", {"list", "-o", "xml"}, 2, "xml"},
      {"bad address", {"list", "--coordinator", "host"}, 2, "\"host\" is not an address"},
      {"bad port", {"list", "--coordinator", "host:70000"}, 2, "HOST:PORT"},
      {"bad number", {"watch", kJobId, "--after-seq", "x"}, 2, "--after-seq"},
      {"bad state", {"list", "--state", "DONE"}, 2, "DONE"},
      {"export without format", {"export", kJobId, "--output", "x"}, 2, "--format"},
      {"empty request id",
       {"submit", good, "--request-id", ""},
       2,
       "--request-id: the value is empty; expected at least one character"},
      {"empty output",
       {"export", kJobId, "--format", "timm", "--output", ""},
       2,
       "--output: the value is empty"},
      {"up with a bad gRPC address",
       {"up", "--state-dir", folder_ + "/up", "--listen", "127.0.0.1"},
       2,
       "--listen: \"127.0.0.1\""},
      {"up with a bad port",
       {"up", "--state-dir", folder_ + "/up", "--http", "127.0.0.1:99999"},
       2,
       "a port from 1 to 65535"},
      {"up with port 0",
       {"up", "--state-dir", folder_ + "/up", "--agent-http", "127.0.0.1:0"},
       2,
       "--agent-http: "},
      {"unreachable",
       {"list", "--coordinator", "127.0.0.1:1"},
       3,
       "no coordinator answers at 127.0.0.1:1; start one with `tundish up`"},
      {"no such job file", {"submit", folder_ + "/none.yaml"}, 4, "/none.yaml: No such file"},
      {"unknown key",
       {"submit", unknown_key},
       4,
       "unknown.yaml:3: training.epoch: unknown key, did you mean \"epochs\"?"},
      {"unknown key in plan", {"plan", unknown_key}, 4, "did you mean \"epochs\"?"},
      {"no such job", {"describe", "01NONE"}, 4, "no job \"01NONE\""},
      {"no such job to watch", {"watch", "01NONE"}, 4, "no job \"01NONE\""},
      {"no such rank", {"logs", kJobId, "--rank", "4"}, 4, "the job has ranks 0 to 3"},
      {"not a model yet",
       {"export", kJobId, "--format", "timm", "--output", "x"},
       4,
       "has no model: it is RUNNING"},
      {"call the server lacks",
       {"plan", good},
       4,
       server_->address() + " answered UNIMPLEMENTED (no reason given); is that"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Outcome outcome = Tundish(c.arguments);
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(c.error));
    EXPECT_THAT(outcome.err, testing::StartsWith("tundish: "));
    EXPECT_THAT(Lines(outcome.err), SizeIs(1));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(CliTest, SubmitSendsAbsolutePathsAndAnswersTheJob) {
  const std::string file = Write("job.yaml", "name: elpv\ndata: {folder: cells}\n");
  const Outcome first = Tundish({"submit", file, "--request-id", "r1", "-o", "json"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "{\"job_id\":\"01JOBAAAAAAAAAAAAAAAAAAAAA\",\"existing\":false}\n");
  EXPECT_EQ(state_.submitted().request_id(), "r1");
  EXPECT_EQ(state_.submitted().spec().data().folder(), folder_ + "/cells");
  const Outcome again = Tundish({"submit", file, "--request-id", "r1", "-o", "json"});
  EXPECT_THAT(again.out, HasSubstr("\"existing\":true"));

  EXPECT_EQ(Tundish({"submit", file}).out, std::string("job ") + kJobId + " submitted\n");
  const std::string generated = state_.submitted().request_id();
  EXPECT_THAT(generated, SizeIs(26));
  Tundish({"submit", file});
  EXPECT_NE(state_.submitted().request_id(), generated);
}

TEST_F(CliTest, ARefusedSpecNamesFileFieldValueAndWhatWouldBeRight) {
  v1::InvalidField field;
  field.set_field("model.heads");
  field.set_value("3");
  field.set_expected("a number that parallel.tensor (2) divides");
  state_.SetSubmitError({grpc::StatusCode::INVALID_ARGUMENT, "1 field is wrong"}, {field});
  const std::string file = Write("job.yaml", "name: elpv\n");
  const Outcome outcome = Tundish({"submit", file});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.err, "tundish: " + file +
                             ": model.heads: \"3\" is not right; expected a number that "
                             "parallel.tensor (2) divides\n");
}

TEST_F(CliTest, AnErrorWithoutATextNamesCodeAndAddress) {
  state_.SetSubmitError({grpc::StatusCode::INTERNAL, ""});
  const Outcome outcome = Tundish({"submit", Write("job.yaml", "name: elpv\n")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "tundish: " + server_->address() + " answered INTERNAL and gave no reason\n");
}

TEST_F(CliTest, FollowEndsWithTheJobsFate) {
  const std::string file = Write("job.yaml", "name: elpv\n");
  struct Case {
    v1::JobState state;
    const char* reason;
    int code;
  };
  for (const Case& c :
       {Case{v1::SUCCEEDED, "all_ranks_finished", 0}, Case{v1::FAILED, "folder_not_found", 1},
        Case{v1::CANCELLED, "cancelled_by_client", 1}}) {
    FakeState state;
    v1::Job job = state_.job();
    job.set_message("because");
    state.SetJob(job);
    state.AddEvent(v1::RUNNING, "all_ranks_started");
    state.AddMetric(0, 0.7);
    state.AddEvent(c.state, c.reason);
    server_.emplace(state);
    const Outcome text = Tundish({"submit", file, "--follow"});
    EXPECT_EQ(text.code, c.code);
    EXPECT_THAT(text.out, HasSubstr("RUNNING all_ranks_started"));
    EXPECT_THAT(text.out, HasSubstr("step 1/10  loss 0.7000"));
    EXPECT_THAT(text.out, HasSubstr(v1::JobState_Name(c.state) + " " + c.reason));
    EXPECT_THAT(text.out, HasSubstr("because"));
    const std::string error = c.code == 0 ? ""
                                          : std::string("tundish: job ") + kJobId + " " +
                                                v1::JobState_Name(c.state) + ": because\n";
    EXPECT_EQ(text.err, error);

    const Outcome json = Tundish({"submit", file, "--follow", "-o", "json"});
    EXPECT_EQ(json.code, c.code);
    EXPECT_EQ(json.err, error);
    const std::vector<std::string> lines = Lines(json.out);
    ASSERT_THAT(lines, SizeIs(4));
    EXPECT_EQ(FromJson<v1::SubmitJobResponse>(lines[0]).job_id(), kJobId);
    EXPECT_THAT(lines[2], HasSubstr("\"data_epoch\":0"));
    EXPECT_THAT(lines[2], HasSubstr("\"images_per_second\":0"));
    const auto last = FromJson<v1::JobUpdate>(lines[3]);
    EXPECT_EQ(last.seq(), 3u);
    EXPECT_EQ(last.event().state(), c.state);
    EXPECT_THAT(lines[3], HasSubstr("\"job_epoch\":0"));
    server_.reset();
  }
}

TEST_F(CliTest, WatchGoesOnBehindARestartedCoordinator) {
  for (uint32_t step = 0; step < 3; ++step) state_.AddMetric(step, 1.0);
  Program watch(Command({"watch", kJobId, "-o", "json", "--after-seq", "1"}), Environment());
  EXPECT_EQ(FromJson<v1::JobUpdate>(watch.ReadLine()).seq(), 2u);
  EXPECT_EQ(FromJson<v1::JobUpdate>(watch.ReadLine()).seq(), 3u);

  const int port = server_->port();
  server_.reset();
  EXPECT_THAT(watch.ReadErrorLine(), HasSubstr("lost the coordinator at"));
  state_.AddMetric(3, 1.0);
  server_.emplace(state_, port);
  EXPECT_EQ(FromJson<v1::JobUpdate>(watch.ReadLine()).seq(), 4u);
  EXPECT_THAT(watch.ReadErrorLine(), HasSubstr("is back"));

  state_.AddEvent(v1::SUCCEEDED, "all_ranks_finished");
  EXPECT_EQ(FromJson<v1::JobUpdate>(watch.ReadLine()).seq(), 5u);
  EXPECT_EQ(watch.Finish(), 0);
  EXPECT_EQ(watch.out(), "");
}

TEST_F(CliTest, ReadingCommandsAnswerOneJsonDocument) {
  state_.SetNode("host-a", "ready");
  const Outcome describe = Tundish({"describe", "01JOBA", "-o", "json"});
  EXPECT_EQ(FromJson<v1::Job>(describe.out).job_id(), kJobId);
  for (const char* part : {"\"state\":\"RUNNING\"", "\"job_epoch\":0", "\"incidents\":[]",
                           "\"artifacts\":[]", "\"last_seq\":0"}) {
    EXPECT_THAT(describe.out, HasSubstr(part));
  }
  EXPECT_THAT(FromJson<v1::ListJobsResponse>(Tundish({"list", "-o", "json"}).out).jobs(),
              SizeIs(1));
  EXPECT_THAT(
      FromJson<v1::ListJobsResponse>(Tundish({"list", "--state", "failed", "-o", "json"}).out)
          .jobs(),
      SizeIs(0));
  EXPECT_EQ(FromJson<v1::ListNodesResponse>(Tundish({"nodes", "-o", "json"}).out).nodes(0).node(),
            "host-a");
  EXPECT_EQ(
      FromJson<v1::ExplainJobResponse>(Tundish({"explain", kJobId, "-o", "json"}).out).state(),
      v1::PENDING);
  EXPECT_EQ(
      FromJson<v1::ListCheckpointsResponse>(Tundish({"checkpoints", kJobId, "-o", "json"}).out)
          .checkpoints(0)
          .step(),
      5u);
}

TEST_F(CliTest, ReadingCommandsAnswerText) {
  state_.SetNode("host-a", "ready");
  EXPECT_THAT(Tundish({"list"}).out, HasSubstr("01JOBAAAAAAAAAAAAAAAAAAAAA  elpv  RUNNING"));
  EXPECT_THAT(Tundish({"nodes"}).out, HasSubstr("host-a  ready        1     1"));
  EXPECT_THAT(Tundish({"drain", "host-a"}).out, HasSubstr("host-a gets no new ranks"));
  EXPECT_THAT(Tundish({"nodes"}).out, HasSubstr("host-a  drained"));
  EXPECT_THAT(Tundish({"drain", "host-a", "--undo"}).out, HasSubstr("takes new ranks again"));
  EXPECT_THAT(Tundish({"nodes"}).out, HasSubstr("host-a  ready"));
  EXPECT_EQ(Tundish({"explain", kJobId}).out, "PENDING: waits for 4 devices, 2 are free\n");
  EXPECT_THAT(Tundish({"describe", kJobId}).out, HasSubstr("2 tensor x 2 data"));
  EXPECT_THAT(Tundish({"report", kJobId}).out, HasSubstr("state                RUNNING"));
  EXPECT_EQ(Tundish({"cancel", kJobId}).out, std::string("job ") + kJobId + " is CANCELLED\n");
}

TEST_F(CliTest, LogsShowOneRanksLines) {
  for (const int tp : {0, 1}) {
    v1::JobUpdate update;
    update.mutable_log()->set_dp(1);
    update.mutable_log()->set_tp(tp);
    update.mutable_log()->set_level("info");
    update.mutable_log()->set_text("line of " + std::to_string(tp));
    state_.Add(update);
  }
  state_.AddMetric(0, 1.0);
  EXPECT_THAT(Lines(Tundish({"logs", kJobId}).out), SizeIs(2));
  const Outcome one = Tundish({"logs", kJobId, "--rank", "3"});
  EXPECT_EQ(one.code, 0);
  ASSERT_THAT(Lines(one.out), SizeIs(1));
  EXPECT_THAT(one.out, HasSubstr("info [dp 1 tp 1] line of 1"));

  Program follow(Command({"logs", kJobId, "--follow", "-o", "json"}), Environment());
  EXPECT_EQ(FromJson<v1::JobUpdate>(follow.ReadLine()).seq(), 1u);
  EXPECT_EQ(FromJson<v1::JobUpdate>(follow.ReadLine()).seq(), 2u);
  state_.AddEvent(v1::FAILED, "x");
  EXPECT_EQ(follow.Finish(), 0);
  EXPECT_EQ(follow.out(), "");
}

}  // namespace
}  // namespace tundish::client
