#include "server/rendezvous/store_table.h"

#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum absl::StatusCode;

const StoreTable::Clock::time_point kStart{};

/// Calls a table as one worker and remembers what came back.
class Caller {
 public:
  explicit Caller(StoreTable& table, std::string worker = "w1", std::uint32_t job_epoch = 1)
      : table_(table) {
    request_.set_job_id("J");
    request_.set_worker_id(std::move(worker));
    request_.set_job_epoch(job_epoch);
  }

  /// Describes the answer: the value, "#number", "yes", "no", "ok", a status code's name, or "-"
  /// while there is none.
  std::string Answer() const { return answer_.value_or("-"); }
  std::string message() const { return message_; }

  std::string Set(const std::string& key, const std::string& value) {
    v1::StoreRequest request = For(key);
    request.set_set(value);
    return Call(request);
  }
  std::string Get(const std::string& key, std::uint32_t timeout_ms = 0) {
    v1::StoreRequest request = For(key);
    request.mutable_get()->set_timeout_ms(timeout_ms);
    return Call(request);
  }
  std::string Add(const std::string& key, std::int64_t amount) {
    v1::StoreRequest request = For(key);
    request.set_add(amount);
    return Call(request);
  }
  std::string Check(const std::string& key) {
    v1::StoreRequest request = For(key);
    request.mutable_check();
    return Call(request);
  }
  std::string Delete(const std::string& key) {
    v1::StoreRequest request = For(key);
    request.mutable_delete_();
    return Call(request);
  }
  std::string Call(const v1::StoreRequest& request) {
    answer_.reset();
    table_.Call(request, kStart, [this, op = request.op_case()](auto reply) { Note(op, reply); });
    return Answer();
  }
  v1::StoreRequest For(const std::string& key) const {
    v1::StoreRequest request = request_;
    request.set_key(key);
    return request;
  }

 private:
  void Note(v1::StoreRequest::OpCase op, const absl::StatusOr<v1::StoreReply>& reply) {
    EXPECT_FALSE(answer_) << "answered twice";
    message_ = std::string(reply.status().message());
    if (!reply.ok()) {
      answer_ = absl::StatusCodeToString(reply.status().code());
    } else if (op == v1::StoreRequest::kGet) {
      answer_ = reply->value();
    } else if (op == v1::StoreRequest::kAdd) {
      answer_ = "#" + std::to_string(reply->number());
    } else if (op == v1::StoreRequest::kSet) {
      answer_ = "ok";
    } else {
      answer_ = reply->found() ? "yes" : "no";
    }
  }

  StoreTable& table_;
  v1::StoreRequest request_;
  std::optional<std::string> answer_;
  std::string message_;
};

class StoreTableTest : public testing::Test {
 protected:
  StoreTableTest() { table_.Open("J", 1, {"w1", "w2"}); }
  StoreTable table_;
  Caller one_{table_};
  Caller two_{table_, "w2"};
};

TEST_F(StoreTableTest, KeepsAndCounts) {
  EXPECT_EQ(one_.Check("k"), "no");
  EXPECT_EQ(one_.Set("k", std::string("a\0b", 3)), "ok");
  EXPECT_EQ(two_.Get("k"), std::string("a\0b", 3));
  EXPECT_EQ(two_.Check("k"), "yes");
  EXPECT_EQ(two_.Set("k", ""), "ok");
  EXPECT_EQ(one_.Get("k"), "");
  EXPECT_EQ(one_.Delete("k"), "yes");
  EXPECT_EQ(one_.Delete("k"), "no");
  EXPECT_EQ(one_.Get("k"), "DEADLINE_EXCEEDED");
  EXPECT_EQ(one_.Add("n", 2), "#2");
  EXPECT_EQ(two_.Add("n", -5), "#-3");
  EXPECT_EQ(two_.Get("n"), "-3");
  EXPECT_EQ(two_.Set("n", "7"), "ok");
  EXPECT_EQ(two_.Add("n", 1), "#8");
}

TEST_F(StoreTableTest, AGetWaitsForTheKey) {
  EXPECT_EQ(one_.Get("k", 1000), "-");
  EXPECT_EQ(two_.Get("k", 500), "-");
  EXPECT_EQ(table_.NextDeadline(), kStart + milliseconds(500));
  EXPECT_EQ(table_.pending_waits(), 2u);
  Caller other(table_);
  EXPECT_EQ(other.Set("another", "x"), "ok");
  EXPECT_EQ(one_.Answer(), "-");
  EXPECT_EQ(other.Set("k", "v"), "ok");
  EXPECT_EQ(one_.Answer(), "v");
  EXPECT_EQ(two_.Answer(), "v");
  EXPECT_EQ(table_.NextDeadline(), std::nullopt);
}

TEST_F(StoreTableTest, AddWakesToo) {
  EXPECT_EQ(one_.Get("n", 1000), "-");
  EXPECT_EQ(two_.Add("n", 4), "#4");
  EXPECT_EQ(one_.Answer(), "4");
}

TEST_F(StoreTableTest, WaitsExpireInOrder) {
  EXPECT_EQ(one_.Get("k", 1000), "-");
  EXPECT_EQ(two_.Get("k", 500), "-");
  table_.ExpireWaits(kStart + milliseconds(499));
  EXPECT_EQ(two_.Answer(), "-");
  table_.ExpireWaits(kStart + milliseconds(500));
  EXPECT_EQ(two_.Answer(), "DEADLINE_EXCEEDED");
  EXPECT_THAT(two_.message(), HasSubstr("key 'k'"));
  EXPECT_EQ(one_.Answer(), "-");
  EXPECT_EQ(table_.NextDeadline(), kStart + milliseconds(1000));
  table_.ExpireWaits(kStart + milliseconds(5000));
  EXPECT_EQ(one_.Answer(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(table_.pending_waits(), 0u);
}

TEST_F(StoreTableTest, AFenceEndsWaitsAndRefusesLateCalls) {
  EXPECT_EQ(one_.Set("k", "old"), "ok");
  EXPECT_EQ(one_.Get("never", 1000), "-");
  table_.Fence("J", 2);
  EXPECT_EQ(one_.Answer(), "ABORTED");
  EXPECT_EQ(one_.message(), "job_epoch 1 is not the current one, job_epoch 2 is");
  EXPECT_EQ(table_.pending_waits(), 0u);
  EXPECT_EQ(one_.Set("k", "late"), "ABORTED");
  EXPECT_THAT(one_.message(), HasSubstr("job_epoch 2 is"));

  Caller early(table_, "w1", 2);
  EXPECT_EQ(early.Get("k"), "ABORTED");
  EXPECT_THAT(early.message(), HasSubstr("in preparation"));
  table_.Open("J", 2, {"w1", "w3"});
  EXPECT_EQ(early.Get("k"), "DEADLINE_EXCEEDED") << "keys of the dead job_epoch are gone";
  Caller left(table_, "w2", 2);
  EXPECT_EQ(left.Get("k"), "PERMISSION_DENIED");
  Caller future(table_, "w1", 3);
  EXPECT_EQ(future.Get("k"), "ABORTED");
}

TEST_F(StoreTableTest, FencesAndOpensAreIdempotent) {
  EXPECT_EQ(one_.Set("k", "v"), "ok");
  table_.Open("J", 1, {"somebody else"});
  table_.Fence("J", 1);
  table_.Fence("J", 0);
  EXPECT_EQ(one_.Get("k"), "v");
}

TEST_F(StoreTableTest, AClosedJobIsNotFound) {
  EXPECT_EQ(one_.Get("k", 1000), "-");
  table_.Close("J");
  EXPECT_EQ(one_.Answer(), "ABORTED");
  EXPECT_EQ(one_.Get("k"), "NOT_FOUND");
  table_.Close("J");
  EXPECT_EQ(table_.NextDeadline(), std::nullopt);
}

TEST_F(StoreTableTest, JobsDoNotSeeEachOther) {
  table_.Open("K", 1, {"w1"});
  EXPECT_EQ(one_.Set("k", "v"), "ok");
  v1::StoreRequest request = one_.For("k");
  request.set_job_id("K");
  request.mutable_check();
  EXPECT_EQ(one_.Call(request), "no");
  table_.Fence("K", 2);
  EXPECT_EQ(one_.Get("k"), "v");
}

TEST(StoreTableLimitsTest, EachIsEnforcedAndNamed) {
  StoreTable table({.key_bytes = 8, .value_bytes = 10, .keys = 3, .total_bytes = 30, .waits = 1});
  table.Open("J", 1, {"w1"});
  Caller caller(table);
  EXPECT_EQ(caller.Set("", "v"), "INVALID_ARGUMENT");
  EXPECT_EQ(caller.Set("123456789", "v"), "INVALID_ARGUMENT");
  EXPECT_THAT(caller.message(), HasSubstr("9 bytes: expected 1 to 8"));
  EXPECT_EQ(caller.Set("a", "12345678901"), "RESOURCE_EXHAUSTED");
  EXPECT_THAT(caller.message(), HasSubstr("at most 10"));
  EXPECT_EQ(caller.Get("a", 600001), "INVALID_ARGUMENT");
  EXPECT_EQ(caller.Set("a", "1234567890"), "ok");
  EXPECT_EQ(caller.Set("b", "1234567890"), "ok");
  EXPECT_EQ(caller.Set("c", "1234567890"), "RESOURCE_EXHAUSTED");
  EXPECT_THAT(caller.message(), HasSubstr("33 bytes: expected at most 30"));
  EXPECT_EQ(caller.Set("a", "0987654321"), "ok") << "replacing counts the difference only";
  EXPECT_EQ(caller.Set("c", ""), "ok");
  EXPECT_EQ(caller.Set("d", ""), "RESOURCE_EXHAUSTED");
  EXPECT_THAT(caller.message(), HasSubstr("3 keys"));
  EXPECT_EQ(caller.Delete("b"), "yes");
  EXPECT_EQ(caller.Add("d", 1), "#1");
  EXPECT_EQ(caller.Get("x", 10), "-");
  Caller second(table);
  EXPECT_EQ(second.Get("x", 10), "RESOURCE_EXHAUSTED");
}

TEST_F(StoreTableTest, AddRefusesWhatIsNoNumber) {
  for (const char* value : {"", "x", "1 ", " 1", "1x", "9223372036854775808"}) {
    EXPECT_EQ(one_.Set("n", value), "ok");
    EXPECT_EQ(one_.Add("n", 1), "INVALID_ARGUMENT") << value;
  }
  EXPECT_EQ(one_.Set("n", "9223372036854775807"), "ok");
  EXPECT_EQ(one_.Add("n", 1), "INVALID_ARGUMENT");
  EXPECT_EQ(one_.Get("n"), "9223372036854775807");
  EXPECT_EQ(one_.Call(one_.For("n")), "INVALID_ARGUMENT") << "no operation";
}

TEST_F(StoreTableTest, RepliesMayCallTheTable) {
  std::vector<std::string> log;
  v1::StoreRequest get = one_.For("a");
  get.mutable_get()->set_timeout_ms(1000);
  // The woken wait sets the key another wait needs, and fences its own job_epoch.
  v1::StoreRequest other = two_.For("b");
  other.mutable_get()->set_timeout_ms(1000);
  table_.Call(other, kStart, [&](auto reply) { log.push_back("b=" + reply->value()); });
  table_.Call(get, kStart, [&](auto reply) {
    log.push_back("a=" + reply->value());
    v1::StoreRequest set = one_.For("b");
    set.set_set("2");
    table_.Call(set, kStart, [&](auto) { log.push_back("set"); });
    table_.Fence("J", 2);
    table_.Close("J");
  });
  EXPECT_EQ(one_.Set("a", "1"), "ok");
  EXPECT_THAT(log, ElementsAre("a=1", "set", "b=2"));
}

/// Random calls against a map; every call is answered exactly once.
TEST(StoreTablePropertyTest, BehavesLikeAMap) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    StoreTable table;
    std::uint32_t epoch = 1;
    table.Open("J", epoch, {"w1"});
    std::map<std::string, std::string> model;
    int asked = 0;
    int answered = 0;
    auto now = kStart;
    for (int i = 0; i < 400; ++i) {
      v1::StoreRequest request;
      request.set_job_id("J");
      request.set_job_epoch(epoch);
      request.set_worker_id("w1");
      request.set_key(fmt::format("k{}", random() % 6));
      const bool there = model.contains(request.key());
      const auto ask = [&](auto check) {
        ++asked;
        table.Call(request, now, [&answered, check](auto reply) {
          ++answered;
          check(reply);
        });
      };
      switch (random() % 6) {
        case 0:
          request.set_set(std::to_string(random() % 100));
          model[request.key()] = request.set();
          ask([](auto& reply) { EXPECT_TRUE(reply.ok()); });
          break;
        case 1: {
          request.mutable_get()->set_timeout_ms(random() % 50 + 1);
          const std::string want = there ? model[request.key()] : "";
          ask([=](auto& reply) {
            if (there) {
              EXPECT_EQ(reply->value(), want);
            }
          });
          break;
        }
        case 2: {
          request.set_add(static_cast<int>(random() % 9) - 4);
          const auto want = (there ? std::stoll(model[request.key()]) : 0) + request.add();
          model[request.key()] = std::to_string(want);
          ask([=](auto& reply) { EXPECT_EQ(reply->number(), want); });
          break;
        }
        case 3:
          request.mutable_delete_();
          model.erase(request.key());
          ask([=](auto& reply) { EXPECT_EQ(reply->found(), there); });
          break;
        case 4:
          now += milliseconds(random() % 30);
          table.ExpireWaits(now);
          EXPECT_TRUE(!table.NextDeadline() || *table.NextDeadline() > now);
          break;
        case 5:
          if (random() % 20 == 0) {
            table.Open("J", ++epoch, {"w1"});
            model.clear();
          }
      }
      EXPECT_EQ(asked - answered, static_cast<int>(table.pending_waits()));
    }
    table.Close("J");
    EXPECT_EQ(asked, answered);
  }
}

}  // namespace
}  // namespace tundish::rendezvous
