#include "launcher/telemetry/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/unit/telemetry/exposition.h"

namespace lockstep::telemetry {
namespace {

using std::chrono::system_clock;
using ::testing::HasSubstr;
using ::testing::Not;

const JobLabels kLabels = {
    .name = "mnist", .namespace_name = "default", .strategy = "Mirrored", .framework = "Lockstep"};

// Every metric has been touched.
std::unique_ptr<JobMetrics> Filled() {
  auto metrics = std::make_unique<JobMetrics>(kLabels);
  for (int rank = 0; rank < 2; ++rank) {
    metrics->AddRank({.rank = rank, .role = "worker", .replica = 0, .process = rank});
    for (int step = 1; step <= 3; ++step) {
      metrics->Step(rank,
                    {.step = step,
                     .samples = 256,
                     .loss = 0.5,
                     .loss_average = 0.625,
                     .learning_rate = 0.001,
                     .seconds = 0.003,
                     .collective_seconds = 0.0002,
                     .data_wait_seconds = 0.25,
                     .collective_bytes = 1000,
                     .flops = 2e9},
                    rank == 0);
    }
    metrics->Memory(rank, {.bytes = 12345, .kind = "used"});
  }
  metrics->Evaluation({.split = "test", .accuracy = 0.96});
  metrics->Checkpoint({.step = 3, .seconds = 0.02, .blocking_seconds = 0.25},
                      system_clock::time_point(std::chrono::seconds(1'700'000'000)));
  metrics->Checkpoint({.step = 4, .seconds = 0.02, .blocking_seconds = 0.5, .ok = false},
                      system_clock::now());
  metrics->Restart(RestartReason::kOutOfMemory);
  metrics->ExposedCommunication(0.75);
  metrics->MalformedEvent();
  return metrics;
}

TEST(JobMetricsTest, TellsOfTheGradientsOfParameterServers) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 0, .role = "worker", .replica = 0, .process = 0});
  metrics.AddRank({.rank = 1, .role = "ps", .replica = 0, .process = 0});
  metrics.Step(0, {.step = 1, .gradients_dropped = 9, .gradient_age = 9}, true);
  metrics.Step(1, {.step = 1, .gradients_dropped = 2, .gradient_age = 3}, false);
  metrics.Step(1, {.step = 2, .gradients_dropped = 1, .gradient_age = 1}, false);
  const auto exposition = ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {}));
  const std::map<std::string, std::string> server = {{"role", "ps"}, {"replica", "0"}, {"process", "0"}};
  EXPECT_EQ(exposition.Value("lockstep_gradients_dropped_total", server), 3);
  EXPECT_EQ(exposition.Value("lockstep_gradient_age_updates", server), 1);
}

TEST(JobMetricsTest, TellsOfEachKindOfMemoryAndOfTheLimitFromTheStart) {
  JobMetrics metrics(kLabels);
  RankIdentity identity{.rank = 0};
  identity.device = {.type = "GPU", .memory_policy = "Limit", .memory_limit = 4096};
  metrics.AddRank(identity);
  const auto value = [&](std::string_view kind) {
    const auto exposition = ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {}));
    return exposition.Value(
        "lockstep_device_memory_bytes",
        {{"role", "worker"}, {"replica", "0"}, {"process", "0"}, {"kind", std::string(kind)}});
  };
  EXPECT_EQ(value("limit"), 4096);
  int64_t bytes = 1;
  for (const char* kind : {"used", "held", "peak", "context", "reserved", "limit"}) {
    metrics.Memory(0, {.bytes = ++bytes, .kind = kind});
    EXPECT_EQ(value(kind), bytes) << kind;
  }
}

TEST(JobMetricsTest, TellsOfGpus) {
  JobMetrics metrics(kLabels);
  DeviceSnapshot device{.index = 3, .uuid = "GPU-aaaa"};
  metrics.Device(device);
  const auto value = [&](const std::string& name, std::map<std::string, std::string> labels = {}) {
    labels["device"] = "3";
    return ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {})).Value(name, labels);
  };
  EXPECT_EQ(value("lockstep_device_xid_errors_total"), 0);
  // What the driver does not tell is left out.
  EXPECT_THAT(metrics.Render(MetricsFormat::kPrometheusText, {}),
              Not(HasSubstr("lockstep_device_power_watts")));
  device.utilization = 0.5;
  device.peak_flops = {{"Float32", 8e12}};
  device.power_watts = 300;
  device.temperature = 61;
  device.ecc_errors = 2;
  device.memory_used = 77;
  device.xid_errors = 2;
  device.throttled = {"PowerCap"};
  metrics.Device(device);
  metrics.Device(device);  // the counter stands
  EXPECT_EQ(value("lockstep_device_utilization_ratio"), 0.5);
  EXPECT_EQ(value("lockstep_device_peak_flops", {{"precision", "Float32"}}), 8e12);
  EXPECT_EQ(value("lockstep_device_power_watts"), 300);
  EXPECT_EQ(value("lockstep_device_temperature_celsius"), 61);
  EXPECT_EQ(value("lockstep_device_ecc_uncorrected_errors"), 2);
  EXPECT_EQ(value("lockstep_device_memory_bytes", {{"kind", "device_used"}}), 77);
  EXPECT_EQ(value("lockstep_device_xid_errors_total"), 2);
  EXPECT_EQ(value("lockstep_device_throttled", {{"reason", "PowerCap"}}), 1);
  EXPECT_EQ(value("lockstep_device_throttled", {{"reason", "PowerBrake"}}), 0);
  device.throttled.clear();
  metrics.Device(device);
  EXPECT_EQ(value("lockstep_device_throttled", {{"reason", "PowerCap"}}), 0);
}

TEST(JobMetricsTest, CountsJobsOnceAndRanksEach) {
  JobFigures figures{.goodput = 0.75,
                     .time = JobTime{.productive = 30},
                     .delays = {{.rank = {.process = 1}, .seconds = 0.25}}};
  figures.time->lost[static_cast<size_t>(Loss::kRestart)] = 12.5;
  const auto exposition = ParseExposition(Filled()->Render(MetricsFormat::kPrometheusText, figures));
  EXPECT_EQ(exposition.Value("lockstep_steps_total"), 3);
  EXPECT_EQ(exposition.Value("lockstep_samples_total"), 768);
  EXPECT_EQ(exposition.Value("lockstep_loss"), 0.5);
  EXPECT_EQ(exposition.Value("lockstep_loss_average"), 0.625);
  EXPECT_EQ(exposition.Value("lockstep_learning_rate"), 0.001);
  EXPECT_EQ(exposition.Value("lockstep_accuracy_ratio"), 0.96);
  EXPECT_EQ(exposition.Value("lockstep_goodput_ratio"), 0.75);
  EXPECT_EQ(exposition.Value("lockstep_restarts_total", {{"reason", "OOMKilled"}}), 1);
  EXPECT_EQ(exposition.Value("lockstep_restarts_total", {{"reason", "Hang"}}), 0);
  EXPECT_EQ(exposition.Value("lockstep_lost_work_seconds_total", {{"reason", "Restart"}}), 12.5);
  EXPECT_EQ(exposition.Value("lockstep_lost_work_seconds_total", {{"reason", "DataWait"}}), 0);
  EXPECT_EQ(exposition.Value("lockstep_productive_seconds"), 30);
  EXPECT_EQ(exposition.Value("lockstep_straggler_delay_seconds", {{"process", "1"}}), 0.25);
  EXPECT_EQ(exposition.Value("lockstep_exposed_communication_seconds_total"), 0.75);
  EXPECT_EQ(exposition.Value("lockstep_checkpoint_last_success_timestamp_seconds"), 1.7e9);
  EXPECT_EQ(exposition.Value("lockstep_checkpoint_duration_seconds_count", {{"result", "success"}}), 1);
  EXPECT_EQ(exposition.Value("lockstep_checkpoint_blocking_seconds_total"), 0.75);
  EXPECT_EQ(exposition.Value("lockstep_checkpoint_duration_seconds_count", {{"result", "failure"}}), 1);
  EXPECT_EQ(exposition.Value("lockstep_malformed_events_total"), 1);
  for (const char* process : {"0", "1"}) {
    const std::map<std::string, std::string> rank = {
        {"role", "worker"}, {"replica", "0"}, {"process", process}};
    EXPECT_EQ(exposition.Value("lockstep_step_duration_seconds_count", rank), 3);
    EXPECT_NEAR(exposition.Value("lockstep_step_duration_seconds_sum", rank), 0.009, 1e-12);
    EXPECT_NEAR(exposition.Value("lockstep_collective_duration_seconds_sum", rank), 0.0006, 1e-12);
    EXPECT_EQ(exposition.Value("lockstep_collective_bytes_total", rank), 3000);
    EXPECT_EQ(exposition.Value("lockstep_data_wait_seconds_total", rank), 0.75);
    EXPECT_EQ(exposition.Value("lockstep_model_flops_total", rank), 6e9);
    EXPECT_EQ(exposition.Value("lockstep_device_memory_bytes", rank), 12345);
  }
  EXPECT_EQ(
      exposition.Value(
          "lockstep_job_info",
          {{"job", "mnist"}, {"namespace", "default"}, {"strategy", "Mirrored"}, {"framework", "Lockstep"}}),
      1);
}

TEST(JobMetricsTest, HasTheStandardProcessMetrics) {
  const auto exposition = ParseExposition(Filled()->Render(MetricsFormat::kPrometheusText, {}));
  EXPECT_GE(exposition.Value("process_cpu_seconds_total"), 0);
  EXPECT_GT(exposition.Value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(exposition.Value("process_virtual_memory_bytes"),
            exposition.Value("process_resident_memory_bytes"));
  EXPECT_GE(exposition.Value("process_open_fds"), 3);
  EXPECT_GE(exposition.Value("process_max_fds"), exposition.Value("process_open_fds"));
  EXPECT_GE(exposition.Value("process_threads"), 1);
  const double now = std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(exposition.Value("process_start_time_seconds"), now, 600);
  EXPECT_EQ(exposition.Value("lockstep_build_info"), 1);
}

TEST(JobMetricsTest, BothFormatsKeepTheLintersRules) {
  const auto metrics = Filled();
  const auto text = ParseExposition(metrics->Render(MetricsFormat::kPrometheusText, {.goodput = 0.5}));
  EXPECT_FALSE(text.eof);
  Lint(text, false);
  const auto open_metrics = ParseExposition(metrics->Render(MetricsFormat::kOpenMetrics, {.goodput = 0.5}));
  EXPECT_TRUE(open_metrics.eof);
  Lint(open_metrics, true);
  EXPECT_EQ(text.families.size(), open_metrics.families.size());
}

TEST(JobMetricsTest, HistogramsAreCumulativeAndEndAtInfinity) {
  for (const MetricsFormat format : {MetricsFormat::kPrometheusText, MetricsFormat::kOpenMetrics}) {
    const auto exposition = ParseExposition(Filled()->Render(format, {.goodput = 0.5}));
    const Family* family = exposition.Find("lockstep_step_duration_seconds");
    ASSERT_NE(family, nullptr);
    EXPECT_EQ(family->type, "histogram");
    double previous = 0;
    double bound = 0;
    int infinities = 0;
    for (const Sample& sample : family->samples) {
      if (!sample.name.ends_with("_bucket") || sample.labels.at("process") != "1") continue;
      const double le = std::strtod(sample.labels.at("le").c_str(), nullptr);
      EXPECT_GT(le, bound);
      EXPECT_GE(sample.value, previous);
      EXPECT_EQ(sample.value, le >= 0.003 ? 3 : 0) << le;
      bound = le;
      previous = sample.value;
      infinities += std::isinf(le) ? 1 : 0;
    }
    EXPECT_EQ(infinities, 1);
  }
}

TEST(JobMetricsTest, OpenMetricsHasItsOwnNamesTypesAndUnits) {
  const std::string text = Filled()->Render(MetricsFormat::kOpenMetrics, {.goodput = 0.5});
  EXPECT_THAT(text, HasSubstr("# TYPE lockstep_steps counter\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_steps_total 3\n"));
  EXPECT_THAT(text, HasSubstr("# UNIT lockstep_data_wait_seconds seconds\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE lockstep_job info\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep_job_info{"));
  EXPECT_THAT(text, HasSubstr("le=\"1.0\""));
  EXPECT_THAT(text, HasSubstr("le=\"+Inf\""));
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(JobMetricsTest, NothingAProgramWritesBecomesALabel) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 0});
  metrics.Memory(0, {.bytes = 1, .kind = "hostile\"} 1\n"});
  metrics.Step(7, {.step = 1, .samples = 1}, true);  // nobody's
  const std::string text = metrics.Render(MetricsFormat::kPrometheusText, {});
  EXPECT_THAT(text, Not(HasSubstr("hostile")));
  EXPECT_EQ(ParseExposition(text).Value("lockstep_steps_total"), 0);
}

TEST(JobMetricsTest, CountersOnlyGoUpWhateverIsReported) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 0});
  metrics.Step(0, {.step = 1, .seconds = -1, .collective_seconds = -5, .data_wait_seconds = -5, .flops = -5},
               true);
  metrics.Step(0, {.step = 1, .seconds = 1, .collective_seconds = -5}, true);
  metrics.Checkpoint({.seconds = -3, .blocking_seconds = -1}, system_clock::now());
  for (const Family& family : ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {})).families) {
    if (family.type == "gauge") continue;
    for (const Sample& sample : family.samples) EXPECT_GE(sample.value, 0) << sample.name;
  }
}

TEST(JobMetricsTest, StepsToldTogetherCountEachHoweverMany) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 0, .role = "worker", .replica = 0, .process = 0});
  metrics.Step(0, {.step = 5, .steps = 5, .samples = 1280, .seconds = 0.015}, true);
  metrics.Step(0, {.step = 1'000'000'000'005, .steps = 1'000'000'000'000, .samples = 0, .seconds = 1}, true);
  const auto exposition = ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {}));
  EXPECT_EQ(exposition.Value("lockstep_steps_total"), 1e12 + 5);
  EXPECT_EQ(exposition.Value("lockstep_step_duration_seconds_count"), 1e12 + 5);
  EXPECT_NEAR(exposition.Value("lockstep_step_duration_seconds_sum"), 1.015, 1e-9);
}

TEST(JobMetricsTest, ALauncherWithoutRankZeroLeavesTheJobsCountersOut) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 2, .role = "worker", .replica = 1, .process = 0});
  metrics.Step(2, {.step = 1, .samples = 256, .seconds = 0.1}, false);
  metrics.Restart(RestartReason::kHang);
  const auto exposition = ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {}));
  EXPECT_EQ(exposition.Find("lockstep_steps_total"), nullptr);
  EXPECT_EQ(exposition.Find("lockstep_restarts_total"), nullptr);
  EXPECT_EQ(exposition.Value("lockstep_step_duration_seconds_count"), 1);
}

TEST(JobMetricsTest, MayBeRenderedWhileItCounts) {
  JobMetrics metrics(kLabels);
  metrics.AddRank({.rank = 0});
  std::thread writer([&] {
    for (int i = 1; i <= 2000; ++i) metrics.Step(0, {.step = i, .samples = 1, .seconds = 1e-3}, true);
  });
  for (int i = 0; i < 20; ++i)
    Lint(ParseExposition(metrics.Render(MetricsFormat::kOpenMetrics, {.goodput = 1})), true);
  writer.join();
  EXPECT_EQ(ParseExposition(metrics.Render(MetricsFormat::kPrometheusText, {.goodput = 1}))
                .Value("lockstep_steps_total"),
            2000);
}

TEST(JobMetricsTest, PromtoolHasNothingToSay) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not here";
  const lockstep::testing::TemporaryFolder folder;
  const std::string file =
      folder.Write("metrics", Filled()->Render(MetricsFormat::kPrometheusText, {.goodput = 0.5}));
  const std::string out = folder.File("out");
  const int rc = std::system(("promtool check metrics <" + file + " >" + out + " 2>&1").c_str());
  EXPECT_EQ(rc, 0) << lockstep::testing::ReadText(out);
  EXPECT_EQ(lockstep::testing::ReadText(out), "");
}

struct AcceptCase {
  const char* accept;
  MetricsFormat format;
};

// (Not the header itself: its semicolons would end up in CMake's lists.)
void PrintTo(const AcceptCase& c, std::ostream* out) {
  *out << (c.format == MetricsFormat::kOpenMetrics ? "OpenMetrics" : "text") << " for "
       << std::strlen(c.accept) << " bytes";
}

class NegotiateMetricsFormatTest : public ::testing::TestWithParam<AcceptCase> {};

TEST_P(NegotiateMetricsFormatTest, ChoosesByWeight) {
  EXPECT_EQ(NegotiateMetricsFormat(GetParam().accept), GetParam().format) << GetParam().accept;
}

constexpr auto kText = MetricsFormat::kPrometheusText;
constexpr auto kOpen = MetricsFormat::kOpenMetrics;

INSTANTIATE_TEST_SUITE_P(
    Headers, NegotiateMetricsFormatTest,
    ::testing::Values(
        AcceptCase{"", kText}, AcceptCase{"*/*", kText}, AcceptCase{"text/html,*/*;q=0.8", kText},
        AcceptCase{"text/plain", kText}, AcceptCase{"application/openmetrics-text", kOpen},
        AcceptCase{"Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", kOpen},
        AcceptCase{"application/openmetrics-text;version=0.0.1", kText},
        // Prometheus 2.42 and 3.
        AcceptCase{
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            kOpen},
        AcceptCase{
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;"
            "q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            kOpen},
        AcceptCase{"application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5", kText},
        AcceptCase{"application/openmetrics-text;q=0,text/plain;q=0", kText},
        AcceptCase{"application/openmetrics-text;q=nonsense", kText},
        AcceptCase{"application/openmetrics-text;q=1e999", kText}, AcceptCase{",;,=;q=,;;", kText}));

TEST(NegotiateMetricsFormatTest, TheContentTypesAreExact) {
  EXPECT_EQ(MetricsContentType(kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(MetricsContentType(kOpen), "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

}  // namespace
}  // namespace lockstep::telemetry
