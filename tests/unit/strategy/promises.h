#pragma once

#include "tests/unit/strategy/job.h"

// What every strategy promises, whatever its ranks are and run on. Each trains the job and expects.
namespace lockstep::testing {

// Losses, parameters and slots bit for bit, and nobody threw.
void ExpectSameOnAllRanks(const Outcome& outcome);
// Each step's loss, relative to the reference's.
void ExpectLossesNear(const Outcome& outcome, const Outcome& reference, double relative);

// Samples and correct ones are those of the global batch, and as many as the one process of `reference`
// counts.
void ExpectCountsOfTheGlobalBatch(const Job& job, const Job& reference);
// Whoever is asked to stop: all end together, two steps after the first was asked at the latest.
void ExpectAllStopAfterTheSameStep(const Job& job);
// A state that was taken after 10 steps is restored in the middle of others, and the next 10 are those of an
// undisturbed run. Returns on how many ranks of a job that is no pipeline the whole was asked for.
int ExpectARestoredStateGoesOn(const Job& job);
// The model evaluates with the moving average of the parameters while it is told to, and no longer.
void ExpectTheAverageIsReadWhereAsked(const Job& job);

// Rank 1 throws between steps: the others fail in the next one, well before their deadline.
void ExpectARankThatFailsEndsTheOthersSoon(const Job& job);
// The ranks are processes, the last of which is killed.
void ExpectAKilledProcessEndsTheOthersWithinASecond(const Job& job);

// The job with all samples on the last rank, on the first, then in rising parts.
Job WithUnevenShares(Job job);
// The job with SGD, Nesterov's momentum and an L2 penalty.
Job WithMomentumAndPenalty(Job job);
// The job with a schedule, weight decay, a clipped norm, averaged parameters and an L2 penalty.
Job WithTheWholeRecipe(Job job);

}  // namespace lockstep::testing
