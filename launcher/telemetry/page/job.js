const kInterval = 500;
const kFreshFor = 4000;

const lossChart = new Chart(byId("loss"), byId("loss-said"), (value, step) => step > 0 ? value.toFixed(decimals(step)) :
  value >= 1e5 || value < 1e-3 ? value.toExponential(step === 0 ? 0 : 2) : step === 0 ? String(Number(value.toPrecision(1))) : value.toFixed(4), false);
const rateChart = new Chart(byId("rate"), byId("rate-said"), (value, step) => step < 1 && step > 0 ? value.toFixed(decimals(step)) :
  grouped(value), true);

// Of numbers that are `step` apart.
function decimals(step) {
  return Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

let finished = false;
let sort = {key: "rank", descending: false};
let shown = null;  // the last answer
const seenRestarts = new Map();  // by rank: how often it was started again, and until when that is news

const kColumns = [
  {key: "rank", name: "Rank", always: true, value: (rank) => rank.rank, text: (rank) => rank.rank},
  {key: "role", name: "Role", words: true, value: (rank) => rank.role + two(rank.roleRank), text: (rank) => rank.role + " " + rank.roleRank},
  {key: "state", name: "State", words: true, value: (rank) => rank.state + rank.phase, text: stateText, className: stateClass},
  {key: "step", name: "Step", value: (rank) => rank.step, text: (rank) => rank.step > 0 ? grouped(rank.step) : ""},
  {key: "stepSeconds", name: "Step time", value: (rank) => number(rank.stepSeconds) || 0, text: (rank) => milliseconds(rank.stepSeconds)},
  {key: "waiting", name: "of it waiting", title: "for the other ranks, or sending to them", value: waitingShare, text: (rank) => {
    const share = waitingShare(rank);
    return share < 0 ? "" : Math.round(share * 100) + " %";
  }},
  {key: "memory", name: "Memory", value: (rank) => rank.memoryBytes || 0, text: memoryText},
  {key: "restarts", name: "Restarts", value: (rank) => rank.restarts, text: (rank) => rank.restarts},
  {key: "pid", name: "PID", value: (rank) => rank.pid || 0, text: (rank) => rank.pid || ""},
];

// Of a program that has never said what it does: it need not.
function isQuiet(rank) {
  return rank.state === "Running" && rank.phase === "Starting" && shown.framework !== "Lockstep";
}

function stateText(rank) {
  if (rank.state === "Exited") return "Exited with " + rank.exitCode;
  return isQuiet(rank) || rank.state !== "Running" ? rank.state : rank.phase;
}

function stateClass(rank) {
  if (rank.state === "Exited") return rank.exitCode === 0 ? "soft" : "bad";
  return isQuiet(rank) || rank.state === "Running" && rank.phase === "Training" ? "good" : "busy";
}

function milliseconds(seconds) {
  const value = number(seconds) * 1e3;
  if (!(value > 0)) return "";
  return value >= 10000 ? duration(value / 1e3) : (value >= 100 ? value.toFixed(0) : value.toFixed(2)) + " ms";
}

function waitingShare(rank) {
  const step = number(rank.stepSeconds);
  return step > 0 ? Math.min(1, number(rank.collectiveSeconds) / step) : -1;
}

function memoryText(rank) {
  const limit = rank.memory && rank.memory.limitBytes;
  return rank.memoryBytes === undefined ? "" : bytes(rank.memoryBytes) + (limit ? " of " + bytes(limit) : "");
}

function showHead(job) {
  setText(byId("name"), job.name);
  setClass(byId("phase"), "badge " + phaseClass(job.phase));
  setText(byId("phase"), job.phase);
  document.title = job.name + ": " + job.phase;
  const replicas = job.replicas || {};
  const parts = [job.namespace, job.framework === "None" ? "" : job.framework, job.strategy, job.worldSize + (job.worldSize === 1 ? " process" : " processes")];
  if ((replicas.leftOut || []).length > 0) parts.push(replicas.running + " of " + replicas.desired + " replicas");
  if (job.attempt > 0) parts.push("attempt " + job.attempt);
  parts.push("generation " + job.generation, job.restarts + (job.restarts === 1 ? " restart" : " restarts"));
  parts.push((job.completionTime ? "ran " : "for ") + duration(Math.floor(number(job.elapsedSeconds))));
  setText(byId("summary"), parts.filter(Boolean).join(" · "));
}

function showFailure(failure) {
  byId("failure").hidden = !failure;
  if (!failure) return;
  const when = new Date(failure.time);
  setText(byId("failure-when"), failure.reason + (Number.isNaN(when.getTime()) ? "" : " at " + clock(when)));
  setText(byId("failure-message"), failure.message);
  const lines = failure.lastLines || [];
  const box = byId("failure-lines");
  box.hidden = lines.length === 0;
  // The last one says most.
  if (setText(box, lines.join("\n"))) box.scrollTop = box.scrollHeight;
}

// "WaitingForResources" as people write it.
const inWords = (name) => name.replace(/(?!^)[A-Z]/g, " $&").toLowerCase();

function showProgress(job) {
  const progress = job.progress;
  byId("no-steps").hidden = Boolean(progress);
  setText(byId("no-steps"), job.framework === "Lockstep" ? "No step yet." : "No step yet: a program need not report any.");
  byId("bar").hidden = !progress || !progress.totalSteps;
  const figures = [];
  if (progress) {
    if (progress.totalSteps) {
      setAttribute(byId("bar"), "max", progress.totalSteps);
      setAttribute(byId("bar"), "value", Math.min(progress.step, progress.totalSteps));
    }
    figures.push(["Step" + (progress.totalSteps ? " of " + grouped(progress.totalSteps) : ""), grouped(progress.step)]);
    if (progress.percentage !== undefined) figures.push(["Done", progress.percentage + " %"]);
    figures.push(["Epoch", grouped(progress.epoch + 1)]);
    if (progress.loss !== undefined) figures.push(["Loss", lossText(number(progress.loss))]);
    if (progress.lossAverage !== undefined) figures.push(["Loss, averaged", lossText(number(progress.lossAverage))]);
    if (progress.accuracy !== undefined) figures.push(["Accuracy", (number(progress.accuracy) * 100).toFixed(2) + " %"]);
    if (progress.samplesPerSecond !== undefined) figures.push(["Samples/s", grouped(number(progress.samplesPerSecond))]);
    if (progress.estimatedRemainingSeconds !== undefined && job.phase === "Running") {
      figures.push(["Time left", duration(progress.estimatedRemainingSeconds)]);
    }
  }
  if (job.goodput !== undefined) figures.push(["Goodput", (number(job.goodput) * 100).toFixed(1) + " %"]);
  const lost = Object.entries(job.lostSeconds || {}).map(([why, seconds]) => [inWords(why), number(seconds)])
    .filter((each) => each[1] >= 0.05);
  byId("time-lost").hidden = lost.length === 0;
  setText(byId("time-lost"), "Of its " + duration(number(job.elapsedSeconds)) + " it lost: " +
    lost.map(([why, seconds]) => why + " " + duration(seconds)).join(" · "));
  const boxes = fit(byId("figures"), figures.length, () => {
    const box = make("div");
    box.append(make("dt"), make("dd"));
    return box;
  });
  figures.forEach(([name, value], index) => {
    setText(boxes[index].children[0], name);
    setText(boxes[index].children[1], value);
  });
}

function showCurves(job) {
  const curves = job.curves || {};
  const seconds = curves.seconds || [];
  const column = (values) => seconds.map((second, index) => [second, number(values[index]), curves.step[index]])
    .filter((point) => Number.isFinite(point[1]));
  byId("curves").hidden = seconds.length === 0;
  const marks = (job.generations || []).slice(1).map((each) => number(each.startSeconds));
  const end = number(job.elapsedSeconds) || 0;
  lossChart.show(column(curves.loss || []), marks, end);
  rateChart.show(column(curves.samplesPerSecond || []), marks, end);
}

function sortBy(key) {
  sort = {key, descending: sort.key === key ? !sort.descending : key === "stepSeconds" || key === "memory" || key === "restarts"};
  if (shown) showRanks(shown);
}

function showHeads() {
  const heads = fit(byId("rank-heads"), kColumns.length, () => {
    const head = make("th");
    head.scope = "col";
    const button = make("button");
    button.type = "button";
    head.append(button);
    return head;
  });
  kColumns.forEach((column, index) => {
    setClass(heads[index], column.words ? "text" : "");
    setText(heads[index].firstElementChild, column.name);
    if (column.title) heads[index].firstElementChild.title = column.title;
    heads[index].firstElementChild.addEventListener("click", () => sortBy(column.key));
  });
}

// Whether it is news that the rank was started again.
function isFresh(rank, now) {
  const seen = seenRestarts.get(rank.rank);
  if (!seen || rank.restarts < seen.restarts) {
    seenRestarts.set(rank.rank, {restarts: rank.restarts, until: 0});
    return false;
  }
  if (rank.restarts > seen.restarts) seenRestarts.set(rank.rank, {restarts: rank.restarts, until: now + kFreshFor});
  return seenRestarts.get(rank.rank).until > now;
}

function showRanks(job) {
  const ranks = [...job.ranks];
  const by = kColumns.find((column) => column.key === sort.key);
  ranks.sort((one, other) => {
    const [a, b] = [by.value(one), by.value(other)];
    const order = a < b ? -1 : a > b ? 1 : one.rank - other.rank;
    return sort.descending ? -order : order;
  });
  kColumns.forEach((column, index) => {
    const head = byId("rank-heads").children[index];
    if (column === by) setAttribute(head, "aria-sort", sort.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const texts = ranks.map((rank) => kColumns.map((column) => String(column.text(rank))));
  const used = kColumns.map((column, index) => column.always || texts.some((line) => line[index] !== ""));
  used.forEach((is, index) => byId("rank-heads").children[index].hidden = !is);
  const now = performance.now();
  const rows = fit(byId("rank-rows"), ranks.length, () => {
    const row = make("tr");
    for (const column of kColumns) row.append(make("td", column.words ? "text" : ""));
    return row;
  });
  ranks.forEach((rank, line) => {
    const cells = rows[line].children;
    setAttribute(rows[line], "data-rank", rank.rank);
    setClass(rows[line], isFresh(rank, now) ? "fresh" : "");
    kColumns.forEach((column, index) => {
      setText(cells[index], texts[line][index]);
      cells[index].hidden = !used[index];
      if (column.className) setClass(cells[index], "text " + column.className(rank));
    });
  });
  for (const known of seenRestarts.keys()) {
    if (!ranks.some((rank) => rank.rank === known)) seenRestarts.delete(known);
  }
  const running = ranks.filter((rank) => rank.state === "Running").length;
  const elsewhere = job.worldSize > ranks.length ? " here, of " + job.worldSize + " in the job" : "";
  const slow = job.straggler ? " · rank " + job.straggler.rank + " holds the others up by " +
    milliseconds(job.straggler.delaySeconds) + " a step" : "";
  setText(byId("ranks-said"), ranks.length === 0 ? "none yet" : running + " of " + ranks.length + " running" + elsewhere + slow);
}

// "0 to 3, 7"
function ranges(numbers) {
  const parts = [];
  for (const each of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] + 1 === each) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([from, to]) => from === to ? from : to === from + 1 ? from + ", " + to : from + " to " + to).join(", ");
}

function placementOf(job) {
  const known = new Map((job.devices || []).map((device) => [device.uuid, device]));
  const places = new Map();
  for (const rank of job.ranks) {
    for (const name of (rank.device && rank.device.devices) || []) {
      if (!places.has(name)) places.set(name, {name, device: known.get(name), ranks: []});
      places.get(name).ranks.push(rank);
    }
  }
  return [...places.values()];
}

function placeLines(place) {
  const device = place.device;
  const title = device ? "GPU " + device.index + (device.name ? " · " + device.name : "") : place.name;
  const ranks = place.ranks.map((rank) => rank.rank);
  const lines = [(ranks.length === 1 ? "rank " : "ranks ") + ranges(ranks)];
  for (const rank of place.ranks) {
    if (rank.layers) lines.push((place.ranks.length > 1 ? "rank " + rank.rank + ": " : "") + rank.layers);
  }
  if (device) {
    const said = [];
    if (device.memoryUsedBytes !== undefined) {
      said.push(bytes(device.memoryUsedBytes) + (device.memoryBytes ? " of " + bytes(device.memoryBytes) : ""));
    }
    if (device.utilization !== undefined) said.push(Math.round(number(device.utilization) * 100) + " % busy");
    if (device.temperatureCelsius !== undefined) said.push(device.temperatureCelsius + " °C");
    if (device.powerWatts !== undefined) said.push(Math.round(number(device.powerWatts)) + " W");
    if (said.length > 0) lines.push(said.join(" · "));
    if ((device.throttled || []).length > 0) lines.push("throttled: " + device.throttled.join(", "));
    if (device.trouble) lines.push(device.trouble);
  }
  return {title, lines, bad: Boolean(device && device.trouble)};
}

function showPlacement(job) {
  const places = placementOf(job).map(placeLines);
  setText(byId("placement-said"), places.length === 0 ? "not known" : places.length + (places.length === 1 ? " device" : " devices"));
  const cards = fit(byId("placement"), places.length, () => {
    const card = make("li");
    card.append(make("strong"), make("div"));
    return card;
  });
  places.forEach((place, index) => {
    setClass(cards[index], place.bad ? "bad" : "");
    setText(cards[index].children[0], place.title);
    const lines = fit(cards[index].children[1], place.lines.length, () => make("div", "soft"));
    place.lines.forEach((line, number) => setText(lines[number], line));
  });
}

const reasonClass = (reason) => reason === "Succeeded" ? "" : reason === "Resized" || !reason ? "ended" : "failed";

function showGenerations(job) {
  const generations = [...(job.generations || [])].reverse();
  const total = Math.max(number(job.elapsedSeconds) || 0, 1e-3);
  const forgotten = job.generationsForgotten || 0;
  setText(byId("generations-said"), generations.length === 0 ? "none yet" :
    forgotten > 0 ? "the last " + generations.length + " of " + (generations.length + forgotten) : "");
  const items = fit(byId("generations"), generations.length, () => {
    const item = make("li");
    const head = make("div", "head");
    head.append(make("strong"), make("span", "soft"));
    const track = make("div", "track");
    track.setAttribute("aria-hidden", "true");
    track.append(make("i"));
    item.append(head, track, make("div"));
    return item;
  });
  generations.forEach((each, index) => {
    const [head, track, why] = items[index].children;
    const began = number(each.startSeconds);
    const runs = each.endSeconds === undefined;
    const ended = runs ? total : number(each.endSeconds);
    setText(head.children[0], "Generation " + each.generation);
    setText(head.children[1], each.worldSize + (each.worldSize === 1 ? " process" : " processes") + " · began after " +
      duration(began) + (runs ? " · for " : " · ran ") + duration(ended - began) +
      (each.restartedAlone ? " · " + each.restartedAlone + " started again alone" : ""));
    const bar = track.firstElementChild;
    setClass(bar, runs ? "" : reasonClass(each.reason));
    bar.style.left = Math.min(99.5, began / total * 100).toFixed(2) + "%";
    bar.style.width = Math.max(0.3, (ended - began) / total * 100).toFixed(2) + "%";
    setClass(why, runs ? "good" : each.reason === "Succeeded" ? "good" : "soft");
    setText(why, runs ? "running" : "ended: " + (each.reason || "for no reason that is known here") + (each.message ? " · " + each.message : ""));
  });
}

function show(job) {
  shown = job;
  finished = job.phase === "Succeeded" || job.phase === "Failed";
  byId("lost").hidden = true;
  showHead(job);
  showFailure(job.lastFailure);
  showProgress(job);
  showCurves(job);
  showRanks(job);
  showPlacement(job);
  showGenerations(job);
}

function lost(last) {
  byId("lost").hidden = false;
  if (last === null) {
    setText(byId("lost"), "The launcher does not answer.");
  } else if (finished) {
    setText(byId("lost"), "The job is over and its launcher has ended. This is the last picture, of " + clock(last) + ".");
  } else {
    setText(byId("lost"), "The launcher has not answered since " + clock(last) + ": it has ended, or cannot be reached. " +
      "This is the last picture; the page goes on asking.");
    setText(byId("phase"), shown.phase + ", no answer");
    setClass(byId("phase"), "badge busy");
  }
}

showHeads();
follow(() => "status?curves=1", kInterval, show, lost);
