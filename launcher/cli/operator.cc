#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "common/contract/exit_codes.h"
#include "common/contract/token.h"
#include "common/log.h"
#include "launcher/cli/commands.h"
#include "launcher/http/server.h"
#include "launcher/kube/config.h"
#include "launcher/operator/controller.h"
#include "launcher/telemetry/page.h"

namespace lockstep::cli {

namespace {

constexpr int kPort = 8080;

struct OperatorArguments {
  std::string kubeconfig;
  std::string context;
  std::string address = "0.0.0.0";
  int port = kPort;
  double requests_per_second = 1000;
  bool no_leader_election = false;
  op::ControllerOptions options;
};

std::string Identity() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string identity = std::string(host) + "_";
  for (const char byte : contract::RandomBytes(8)) {
    constexpr char kLetters[] = "bcdfghjklmnpqrstvwxz2456789";
    identity += kLetters[static_cast<unsigned char>(byte) % (sizeof kLetters - 1)];
  }
  return identity;
}

void Serve(http::HttpServer& server, const op::Controller& controller,
           const telemetry::OperatorMetrics& metrics) {
  using http::Request;
  using http::Response;
  server.Handle("/healthz", [&controller](const Request&) {
    if (!controller.deposed()) return Response{.body = "ok\n"};
    return Response{.status = 503, .body = "the lease is lost\n"};
  });
  server.Handle("/readyz", [&controller](const Request&) {
    if (controller.synced()) return Response{.body = "ok\n"};
    return Response{.status = 503, .body = "the first lists are not complete\n"};
  });
  server.Handle("/metrics", [&controller, &metrics](const Request& request) {
    const auto format = telemetry::NegotiateMetricsFormat(request.header("accept"));
    return Response{.content_type = std::string(telemetry::MetricsContentType(format)),
                    .body = metrics.Render(format, controller.JobsByPhase()),
                    .headers = {{"Vary", "Accept"}},
                    .compresses = true};
  });
  server.Handle("/jobs", [&controller](const Request& request) {
    const op::JobList list =
        controller.FindJobs({.search = request.parameter("search"), .phase = request.parameter("phase")});
    return Response{.content_type = "application/json",
                    .body = op::JobListDocument(list, controller.JobsByPhase(), controller.synced()),
                    .compresses = true};
  });
  telemetry::ServePage(server, telemetry::JobsPage());
}

int RunOperator(OperatorArguments arguments) {
  log::Initialize(log::Level::kInfo, "lockstep-operator");
  // Before any thread, so that all have them blocked and only the wait below gets them.
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&stops, signal);
  ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const Result<kube::Config> config = kube::FindConfig(arguments.kubeconfig, arguments.context);
  if (!config.ok()) return Complain(config.status().message(), contract::kExitUsage);
  telemetry::OperatorMetrics metrics;
  kube::ClientOptions options{.requests_per_second = arguments.requests_per_second,
                              .burst = static_cast<int>(arguments.requests_per_second) * 2,
                              .user_agent = "lockstep-operator",
                              .field_manager = "lockstep-operator",
                              .observer = [&metrics](const kube::RequestRecord& record) {
                                metrics.Request(record.method, record.host, record.http_status);
                              }};
  const auto client = kube::Client::Make(*config, options);
  if (!client.ok()) return Complain(client.status().message(), contract::kExitUsage);
  const auto lease_client = kube::Client::Make(*config, options);
  if (!lease_client.ok()) return Complain(lease_client.status().message(), contract::kExitUsage);

  op::ControllerOptions& controls = arguments.options;
  controls.leader_election = !arguments.no_leader_election;
  controls.identity = Identity();
  if (controls.lease_space.empty()) controls.lease_space = (*client)->default_namespace();
  op::Controller controller(**client, **lease_client, metrics, controls);
  http::HttpServer server({.address = arguments.address, .port = arguments.port});
  Serve(server, controller, metrics);
  if (const Status status = server.Start(); !status.ok())
    return Complain(status.message(), contract::kExitUsage);
  log::Info("serves metrics at http://" + server.address() + "/metrics");
  log::Info("shows its jobs at http://" + server.address() + "/");
  controller.Start();

  const timespec look = {.tv_sec = 0, .tv_nsec = 200'000'000};
  while (!controller.deposed() && ::sigtimedwait(&stops, nullptr, &look) < 0) {
  }
  const bool deposed = controller.deposed();
  server.Stop();
  controller.Stop();
  return deposed ? contract::kExitRetryable : contract::kExitDone;
}

}  // namespace

void AddOperator(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("operator", "Run the TrainingJobs of a cluster");
  auto arguments = std::make_shared<OperatorArguments>();
  op::ControllerOptions& options = arguments->options;
  options.lease_space.clear();
  command->add_option("--kubeconfig", arguments->kubeconfig,
                      "a file; by default $KUBECONFIG, or the service account of the pod");
  command->add_option("--context", arguments->context, "of the kubeconfig; by default its current one");
  command->add_option("--namespace", options.space, "the only namespace to look at; by default all");
  command->add_option("--image", options.children.image, "of the pods, where a template names none");
  command->add_option("--image-pull-policy", options.children.pull_policy, "of that image")
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}));
  command->add_option("--cluster-domain", options.children.cluster_domain, "the zone of the cluster's DNS");
  command->add_option("--gpu-resource", options.children.gpu_resource,
                      "what jobs with devices of type GPU ask for, where a template asks for nothing");
  command->add_option("--workers", options.workers, "jobs that are looked at side by side")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--requests-per-second", arguments->requests_per_second,
                   "to the API server, at most; 0 is no limit")
      ->check(CLI::Range(0, 100'000));
  command->add_flag("--no-leader-election", arguments->no_leader_election, "act without holding a Lease");
  command->add_option("--lease-namespace", options.lease_space, "of the Lease; by default the pod's own");
  command->add_option("--address", arguments->address,
                      "where the page of jobs, /metrics, /healthz and /readyz are served");
  command->add_option("--port", arguments->port, "of that address; 0 is any")->check(CLI::Range(0, 65'535));
  AddLogFormat(*command);
  command->callback([&action, arguments] { action = [arguments] { return RunOperator(*arguments); }; });
}

}  // namespace lockstep::cli
