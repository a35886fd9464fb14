const kInterval = 2000;
const kTyping = 150;  // milliseconds between the last key and the question

let phase = "";
let total = 0;

function age(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : duration(Math.max(0, Math.floor((Date.now() - date.getTime()) / 1000)));
}

const kPhases = ["Pending", "Scheduled", "Running", "Restarting", "Suspended", "Succeeded", "Failed"];

function showPhases(phases) {
  const names = ["", ...kPhases.filter((name) => phases[name] > 0 || name === phase)];
  const buttons = fit(byId("phases"), names.length, () => {
    const button = make("button");
    button.type = "button";
    button.addEventListener("click", () => {
      phase = button.dataset.phase;
      ask();
    });
    return button;
  });
  names.forEach((name, index) => {
    setAttribute(buttons[index], "data-phase", name);
    setAttribute(buttons[index], "aria-pressed", name === phase);
    setText(buttons[index], (name || "All") + " " + grouped(name ? phases[name] : total));
  });
}

function makeRow() {
  const row = make("tr");
  for (const className of ["name", "text", "", "", "", "", "", "", "", "text long"]) row.append(make("td", className));
  const bar = make("progress");
  bar.max = 100;
  const percent = make("span");
  row.children[2].append(bar, percent);
  const badge = make("span");
  row.children[1].append(badge);
  return row;
}

function showRow(row, job) {
  const cells = row.children;
  const progress = job.progress || {};
  setText(cells[0], job.namespace + "/" + job.name);
  setClass(cells[1].firstElementChild, "badge " + phaseClass(job.phase));
  setText(cells[1].firstElementChild, job.phase);
  const [bar, percent] = cells[2].children;
  bar.hidden = progress.percentage === undefined;
  if (progress.percentage !== undefined) setAttribute(bar, "value", progress.percentage);
  setAttribute(bar, "aria-label", "Steps done of " + job.name);
  setText(percent, progress.percentage === undefined ? "" : progress.percentage + " %");
  setText(cells[3], progress.step ? grouped(progress.step) : "");
  setText(cells[4], progress.samplesPerSecond ? grouped(number(progress.samplesPerSecond)) : "");
  setText(cells[5], progress.loss ? lossText(number(progress.loss)) : "");
  const replicas = job.replicas || {};
  setText(cells[6], replicas.desired === undefined ? "" : (replicas.ready || 0) + "/" + replicas.desired);
  setText(cells[7], job.restarts || 0);
  setText(cells[8], age(job.creationTime));
  setText(cells[9], job.message || "");
}

function show(answer) {
  byId("lost").hidden = true;
  total = answer.total;
  showPhases(answer.phases);
  setClass(byId("phase"), "badge " + (answer.synced ? "good" : "busy"));
  setText(byId("phase"), answer.synced ? "watching" : "reading the cluster");
  const rows = fit(byId("rows"), answer.jobs.length, makeRow);
  answer.jobs.forEach((job, index) => showRow(rows[index], job));
  setText(byId("said"), answer.matching === 0 ? (total === 0 ? "There are no jobs." : "No job is like that.") :
    answer.jobs.length < answer.matching ? "The newest " + grouped(answer.jobs.length) + " of " + grouped(answer.matching) +
      "; search for the others." : grouped(answer.matching) + (answer.matching === 1 ? " job" : " jobs") + ", the newest first");
}

function lost(last) {
  byId("lost").hidden = false;
  setText(byId("lost"), last === null ? "The operator does not answer." : "The operator has not answered since " + clock(last) +
    ". This is the last picture; the page goes on asking.");
  setClass(byId("phase"), "badge busy");
  setText(byId("phase"), "no answer");
}

const ask = follow(() => "jobs?" + new URLSearchParams({search: byId("search").value, phase}), kInterval, show, lost);

let typing = 0;
byId("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(ask, kTyping);
});
