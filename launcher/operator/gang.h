#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launcher/kube/resource.h"
#include "launcher/operator/observe.h"
#include "launcher/spec/training_job.h"

// The group that a gang scheduler knows the pods of an attempt by, so that none of them gets a node before
// enough of them can. Pure.
namespace lockstep::op {

// Whether the job names such a scheduler, and has pods that could wait for one another.
bool HasGang(const spec::TrainingJob& manifest);

// All replicas, or as few as runPolicy.minReplicas lets the job go on with.
int NeededReplicas(const spec::TrainingJob& manifest);

// The kind of the group; only of a scheduler other than kNone.
kube::Resource GangResource(spec::GangScheduler scheduler);

// Of a job that HasGang.
nlohmann::json GangObject(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt);

// What in `pod` (a PodTemplateSpec) may be overruled by the user's template, and what makes it one of the
// group.
void ChooseScheduler(const spec::TrainingJob& manifest, nlohmann::json& pod);
void JoinGang(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt, nlohmann::json& pod);

}  // namespace lockstep::op
