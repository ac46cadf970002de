#include "server/scheduler/cron.h"

#include <chrono>
#include <string>

#include <fmt/chrono.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::scheduler {
namespace {

using std::chrono::sys_days;
using testing::HasSubstr;
using namespace std::chrono_literals;

std::string Text(Time time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

TEST(CronTest, FindsTheNextTime) {
  // A Tuesday.
  const Time now = sys_days(std::chrono::year(2026) / 12 / 1) + 15h + 14min + 20s;
  struct Case {
    const char* expression;
    const char* next;
  };
  const Case cases[] = {
      {"* * * * *", "2026-12-01 15:15:00"},
      {"*/20 * * * *", "2026-12-01 15:20:00"},
      {"0 3 * * mon", "2026-12-07 03:00:00"},
      {"0 3 * * MON", "2026-12-07 03:00:00"},
      {"0 3 * * 1", "2026-12-07 03:00:00"},
      {"0 0 * * 7", "2026-12-06 00:00:00"},
      {"0 0 * * 0", "2026-12-06 00:00:00"},
      {"14 15 * * *", "2026-12-02 15:14:00"},
      {"0,30 8-18/2 * * 1-5", "2026-12-01 16:00:00"},
      {"0 0 1 jan *", "2027-01-01 00:00:00"},
      {"0 0 31 * *", "2026-12-31 00:00:00"},
      {"0 0 29 2 *", "2028-02-29 00:00:00"},
      // Both restricted: either is enough, as in POSIX.
      {"0 0 13 * fri", "2026-12-04 00:00:00"},
      {"0 0 */2 * mon", "2026-12-07 00:00:00"},
      {"5/10 0 * * *", "2026-12-02 00:05:00"},
      {"  0   3 * *   sun ", "2026-12-06 03:00:00"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.expression);
    const auto cron = Cron::Parse(c.expression);
    ASSERT_TRUE(cron.ok()) << cron.status();
    EXPECT_EQ(Text(cron->Next(now)), c.next);
  }
}

TEST(CronTest, NextIsLaterThanTheTimeItself) {
  const auto cron = Cron::Parse("0 3 * * mon");
  ASSERT_TRUE(cron.ok());
  Time time = cron->Next(sys_days(std::chrono::year(2026) / 12 / 1));
  for (int week = 0; week < 200; ++week) {
    const Time next = cron->Next(time);
    ASSERT_EQ(next - time, 24h * 7);
    time = next;
  }
}

TEST(CronTest, NamesWhatIsWrong) {
  struct Case {
    const char* expression;
    const char* message;
  };
  const Case cases[] = {
      {"", "has 0 fields: expected 5"},
      {"0 3 * *", "has 4 fields"},
      {"60 3 * * *", "minute '60': expected numbers of 0 to 59"},
      {"0 24 * * *", "hour '24'"},
      {"0 0 0 * *", "day '0'"},
      {"0 0 * 13 *", "month '13'"},
      {"0 0 * * 8", "weekday '8'"},
      {"0 0 * * mo", "weekday 'mo'"},
      {"5-1 0 * * *", "minute '5-1'"},
      {"*/0 * * * *", "minute '*/0'"},
      {"1- * * * *", "minute '1-'"},
      {"1,,2 * * * *", "minute '1,,2'"},
      {"1/2/3 * * * *", "minute '1/2/3'"},
      {"-1 * * * *", "minute '-1'"},
      {"0 0 30 2 *", "never comes"},
      {"99999999999 * * * *", "minute '99999999999'"},
  };
  for (const Case& c : cases) {
    const auto cron = Cron::Parse(c.expression);
    ASSERT_FALSE(cron.ok()) << c.expression;
    EXPECT_THAT(std::string(cron.status().message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace tundish::scheduler
