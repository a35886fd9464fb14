"use strict";

// What both pages share. Whatever comes from outside goes into the page as text (textContent, attributes), never as markup.

const byId = (id) => document.getElementById(id);

// Without control characters; the colours of a terminal are left out whole.
const printable = (value) => String(value).replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");

// Whether that changed anything.
function setText(element, value) {
  const text = printable(value);
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}

function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

// Makes `parent` have `count` children, of `make()` where there are too few.
function fit(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make());
  return parent.children;
}

function make(tag, className = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  return element;
}

// The numbers of the documents: rates, times and losses are strings there.
function number(value) {
  const result = value === undefined || value === null || value === "" ? NaN : Number(value);
  return Number.isFinite(result) ? result : NaN;
}

const grouped = (value) => Math.round(value).toLocaleString("en-US");
const two = (value) => String(value).padStart(2, "0");

function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 0.05));
  if (seconds >= 0.05 && seconds < 9.95) return seconds.toFixed(1) + " s";
  if (whole < 60) return whole + " s";
  if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
  if (whole < 86400) return Math.floor(whole / 3600) + " h " + two(Math.floor(whole / 60) % 60) + " min";
  return Math.floor(whole / 86400) + " d " + two(Math.floor(whole / 3600) % 24) + " h";
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return (unit === 0 ? value : value.toFixed(1)) + " " + units[unit];
}

function lossText(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(2) : value.toFixed(4);
}

const clock = (date) => two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());

function phaseClass(phase) {
  if (phase === "Failed") return "bad";
  return phase === "Running" || phase === "Succeeded" ? "good" : "busy";
}

// Asks for `path()` every `interval` milliseconds, forever, and hands the answer to `show`; while there is none, `lost` is
// called with the time of the last one (null: there was none) instead. Returns a function that asks at once.
function follow(path, interval, show, lost) {
  let timer = 0;
  let failures = 0;
  let asked = 0;
  let last = null;
  async function ask() {
    const turn = ++asked;
    clearTimeout(timer);
    let answer = null;
    try {
      const response = await fetch(path(), {cache: "no-store", signal: AbortSignal.timeout(5000)});
      if (response.ok) answer = await response.json();
    } catch {
      // The browser has said so on its console; here only the absence of an answer counts.
    }
    if (turn !== asked) return;
    failures = answer === null ? failures + 1 : 0;
    timer = setTimeout(ask, Math.min(interval * 2 ** failures, 4000));
    if (answer === null) return lost(last);
    last = new Date();
    show(answer);
  }
  ask();
  return ask;
}
