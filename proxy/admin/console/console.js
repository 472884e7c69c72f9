"use strict";
// The console of one proxy: reads its REST every two seconds, and changes it on the user's word.
// Names of topics and clients are hostile. They become text by `visible`, and never markup.

const EVERY_MS = 2000;
const MOST_STREAMS = 200;
const MOST_LIMITS = 100;
const MOST_BLOCKS = 200;
const MOST_NAMED = 20;
const HOUR_MS = 3600000;
const STEP_MS = 60000; // from one sample of the proxy to the next
const MOST_SAMPLES = 90; // of the page itself, since the latest one of the proxy
const MOST_HISTORIES = 300;

const at = (id) => document.getElementById(id);
const state = {
  token: "", caller: null, streams: null, limits: null, before: new Map(), rates: new Map(), histories: new Map(),
  absent: new Set(), limit: null, process: "", other: "", fleet: null, looks: 0, isPaused: false, timer: 0, isLooking: false, isAsked: false,
  visit: 0, // one more from each holder of a token, or process, to the next: answers to the one before are dropped
};

// ---- Text

// Controls, directions of writing, blanks other than the space, halves of pairs, and what Unicode has not assigned.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/gu;
const visible = (text) => String(text).replace(UNSEEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
const shortTopic = (name) => name.replace(/^persistent:\/\//, "");
const number = (value) => Math.round(value).toLocaleString("en");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "";
  return `${perSecond >= 10 || perSecond === 0 ? number(perSecond) : perSecond.toPrecision(2)}/s`;
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.length) { bytes /= 1000; unit += 1; }
  return `${unit === 0 || bytes >= 99.95 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

function span(ms) {
  if (ms === null || ms === undefined) return "";
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 60) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const hours = Math.floor(seconds / 3600);
  return hours < 24 ? `${hours} h ${Math.floor(seconds % 3600 / 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const values = (messages, bytes) =>
  [messages === null ? "" : rate(messages), bytes === null ? "" : `${size(bytes)}/s`].filter(Boolean).join(", ");
const word = (text) => visible(text).replaceAll("_", " ");
const limitName = (limit) => `${word(limit.level)} ${visible(shortTopic(limit.name))}`.trim();
// Where a value is from, as `sluice explain` has it: "tenant free-*, plan free (file)".
function placeOf({ setting, name: its, origin, plan }, by = "") {
  const named = `${word(setting)} ${visible(shortTopic(its))}`.trim();
  return `${named}${plan ? `, plan ${visible(plan)}` : ""} (${word(origin)}${by})`;
}
const isAt = (value, { setting, name: its }) => value.setting === setting && value.name === its;
const placesOf = (sources) => sources.map((each) => placeOf(each)).join(" and ");
const keyOf = (limit) => JSON.stringify([limit.direction, limit.level, limit.name]);
const hostOf = (address) => address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");

// ---- Rates, as the configuration writes them, in whole numbers: a number of the script would round them

const BYTES = { "": 1n, B: 1n, kB: 1000n, KB: 1000n, MB: 10n ** 6n, GB: 10n ** 9n, KiB: 2n ** 10n, MiB: 2n ** 20n, GiB: 2n ** 30n };
const SECOND = 10n ** 9n;
const PERIODS = { ms: SECOND / 1000n, s: SECOND, min: 60n * SECOND, h: 3600n * SECOND, d: 86400n * SECOND };
const MOST_TOKENS = 2n ** 63n - 1n;
const LONGEST_PERIOD = (2n ** 31n - 1n) * SECOND;
const NUMBER = "(?:0|[1-9]\\d{0,29})(?:\\.\\d{1,30})?";
const SIZE = new RegExp(`^(${NUMBER}) ?([A-Za-z]*)$`);
const PERIOD = new RegExp(`^(${NUMBER})?([a-z]+)$`);

// A decimal number of a unit, as a fraction: [parts, worth of one].
function fraction(digits, unit) {
  const [before, after = ""] = digits.split(".");
  return [BigInt(before + after) * unit, 10n ** BigInt(after.length)];
}

// A decimal number of a unit; null unless it is a whole number above 0.
function wholeNumber(digits, unit) {
  const [parts, worth] = fraction(digits, unit);
  return parts === 0n || parts % worth ? null : parts / worth;
}

// The nearest whole number; of two, the even one.
function nearest(digits, unit) {
  const [parts, worth] = fraction(digits, unit);
  const [whole, twice] = [parts / worth, 2n * (parts % worth)];
  return twice > worth || (twice === worth && whole % 2n) ? whole + 1n : whole;
}

// "10MB/s" as { amount, period (ns), isOfBytes, isBinary }; null for text that the proxy takes for no rate. `isOfAny`: also
// one beyond its bounds.
function readRate(text, isOfBytes, isOfAny = false) {
  if (text.length > 80) return null;
  const [amountText, periodText = "s", more] = text.split("/");
  const [, digits, unit] = SIZE.exec(amountText.trim()) ?? [];
  const [, times = "1", period] = PERIOD.exec(periodText.replaceAll(" ", "")) ?? [];
  if (more !== undefined || !digits || !period || !Object.hasOwn(PERIODS, period)) return null;
  if (!Object.hasOwn(BYTES, unit) || (unit && !isOfBytes)) return null;
  const rate = { amount: wholeNumber(digits, BYTES[unit]), period: nearest(times, PERIODS[period]), isOfBytes, isBinary: unit.includes("i") };
  if (!rate.amount || !rate.period) return null;
  return isOfAny || (rate.amount <= MOST_TOKENS && rate.period <= LONGEST_PERIOD) ? rate : null;
}

// "64KB", or a number of messages, as the number that comes at once; null for text that the proxy takes for none.
function readBurst(text, isOfBytes, isOfAny = false) {
  if (text.length > 80) return null;
  const [, digits, unit] = (isOfBytes ? SIZE : /^(0|[1-9]\d*)()$/).exec(text) ?? [];
  if (!digits || !Object.hasOwn(BYTES, unit)) return null;
  const [parts, worth] = fraction(digits, BYTES[unit]);
  const burst = nearest(digits, BYTES[unit]);
  return burst && (isOfAny || parts <= MOST_TOKENS * worth) ? burst : null;
}

function sizeText(bytes, isBinary) {
  for (const unit of isBinary ? ["GiB", "MiB", "KiB"] : ["GB", "MB", "KB"]) {
    const thousandths = 1000n * bytes / BYTES[unit];
    if (bytes < BYTES[unit] || 1000n * bytes % BYTES[unit]) continue;
    const part = String(thousandths % 1000n).padStart(3, "0").replace(/0+$/, "");
    return `${thousandths / 1000n}${part && "."}${part}${unit}`;
  }
  return `${bytes}B`;
}

function rateText({ amount, period, isOfBytes, isBinary }) {
  const unit = ["d", "h", "min", "s", "ms"].find((each) => period % PERIODS[each] === 0n);
  if (!unit) return null;
  const times = period / PERIODS[unit];
  return `${isOfBytes ? sizeText(amount, isBinary) : amount}/${times === 1n ? "" : times}${unit}`;
}

// Twice or half of a rate. Half of an odd number is written with a longer period; null where no rate is so low or high.
function scaled(rate, factor) {
  const { amount, period } = rate;
  if (factor > 1) return 2n * amount <= MOST_TOKENS ? { ...rate, amount: 2n * amount } : null;
  if (amount % 2n === 0n) return { ...rate, amount: amount / 2n };
  for (const longer of [PERIODS.s, PERIODS.min, PERIODS.h, PERIODS.d]) {
    const parts = amount * longer;
    if (parts % (2n * period) === 0n && parts / (2n * period) <= MOST_TOKENS) return { ...rate, amount: parts / (2n * period), period: longer };
  }
  return 2n * period <= LONGEST_PERIOD ? { ...rate, period: 2n * period } : null;
}

const atLeastOne = (tokens) => tokens > 1n ? tokens : 1n;

// The burst of a rate without one, as `limiter.token_bucket.rate` has it.
function usualBurst({ amount, period }) {
  const [part, ofLag] = [amount / 10n, amount * (SECOND / 50n) / period];
  return atLeastOne(part > ofLag ? part : ofLag);
}

// A value of a section as the page shows it: rates with their period, sizes in the largest unit.
function shownPart(key, value) {
  if (value === undefined || value === null || value === "") return "";
  const text = String(value);
  if (key.startsWith("burst_")) {
    const size = isOfBytes(key) ? readRate(text, true) : null;
    return size && !text.includes("/") ? sizeText(size.amount, size.isBinary) : text;
  }
  const rate = FIELDS.includes(key) ? readRate(text, isOfBytes(key)) : null;
  return (rate && rateText(rate)) || text;
}

// ---- Elements

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function name(text, title = text) {
  const made = element("bdi", "name", visible(text));
  made.title = visible(title);
  return made;
}

function button(text, press, className = "") {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

// A table whose rows stay the same elements from look to look, so that the focus and a selection stay.
class Rows {
  constructor(id, make) {
    this.body = at(id).tBodies[0];
    this.labels = [...at(id).tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    this.classes = [...at(id).tHead.rows[0].cells].map((cell) => cell.className);
    this.make = make;
    this.rows = new Map();
  }

  // `make` gets a new row's cells and item, and returns the function that shows later items there.
  show(items, key) {
    const focus = document.activeElement;
    const kept = new Map();
    let place = this.body.firstElementChild;
    for (const item of items) {
      const id = key(item);
      if (kept.has(id)) continue;
      const row = this.rows.get(id) ?? this.added(item);
      row.update(item);
      kept.set(id, row);
      if (row.element === place) place = place.nextElementSibling;
      else this.body.insertBefore(row.element, place);
    }
    for (const [id, row] of this.rows) if (!kept.has(id)) row.element.remove();
    this.rows = kept;
    if (focus !== document.activeElement && focus?.isConnected) focus.focus({ preventScroll: true });
  }

  added(item) {
    const row = element("tr");
    row.role = "row"; // a narrow page lays rows out as blocks, which are no table to a screen reader without it
    const cells = this.labels.map((label, index) => {
      const cell = element("td", this.classes[index]);
      cell.role = "cell";
      cell.dataset.label = label;
      row.append(cell);
      return cell;
    });
    return { element: row, update: this.make(cells, item) };
  }
}

// ---- Requests

class Refused extends Error {
  constructor(status, reason, retryMs) {
    super(reason);
    this.status = status;
    this.retryMs = retryMs;
  }
}

const PROCESS = "Sluice-Process";
const idOf = (process) => visible(decodeURIComponent(process.split("/")[0]));

// The page is of one process: requests name it, and others refuse them. Behind an address of several replicas each
// request may reach another one, which has other streams.
function checkProcess(answer, method) {
  const process = answer.headers.get(PROCESS) ?? "";
  if (!state.process || process === state.process || (!process && !answer.ok)) return;
  const own = idOf(state.process);
  if (!process) {
    const done = method === "GET" ? "" : " It is not known whether anything was done.";
    throw new Refused(0, `The answer is not of this process, ${own}: something between it and this page has answered.${done}`, 0);
  }
  state.other = process;
  if (idOf(process) === own) throw new Refused(0, `Another run of ${own} has answered: it has restarted since this page read from it, or two processes have this name. Nothing was done. Go on with it: the page then reads all again.`, 0);
  throw new Refused(0, `${idOf(process)} has answered, and this page is of ${own}: the address leads to several proxies. Nothing was done. Open the console at the address of one proxy, in Kubernetes by kubectl port-forward to its pod, or go on with the one that has answered.`, 0);
}

async function ask(method, path, query = {}, { body, headers = {} } = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined));
  if (query.name === "") words.set("name", "");
  const options = { method, headers: { ...headers }, cache: "no-store", redirect: "error", referrerPolicy: "no-referrer" };
  if (state.token) options.headers.Authorization = `Bearer ${state.token}`;
  if (state.process) options.headers[PROCESS] = state.process;
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const { visit } = state;
  const answer = await fetch(`${path}${words.size ? "?" : ""}${words}`, options).catch(() => null);
  const json = await answer?.json().catch(() => null);
  if (visit !== state.visit) throw new Refused(0, "", 0);
  if (!answer) throw new Refused(0, "The proxy does not answer.", 0);
  checkProcess(answer, method);
  if (!answer.ok || !json) {
    const reason = visible(json?.reason ?? (answer.ok ? "The answer is not of Sluice." : `The proxy answered with ${answer.status}.`));
    throw new Refused(answer.status, reason, 1000 * Number(answer.headers.get("Retry-After") ?? 0));
  }
  return { json, tag: answer.headers.get("ETag"), process: answer.headers.get(PROCESS) ?? "" };
}

const mayWrite = () => state.caller?.access === "write";
const isOperator = () => state.caller?.tenants === null;

// ---- One look

async function look() {
  clearTimeout(state.timer);
  state.isAsked = true;
  if (state.isLooking) return;
  state.isLooking = true;
  state.isAsked = false;
  const { visit } = state;
  let wait = EVERY_MS;
  try {
    if (!state.caller) await enter();
    if (state.caller && !state.isPaused) await refresh();
    if (state.caller) { state.other = ""; problem(""); }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    wait = Math.max(wait, error.retryMs);
    if (visit !== state.visit) return; // the next one has the page
    if (error.status === 401 || (error.status === 403 && !state.caller)) leave(state.token ? error.message : "");
    else problem(error.message);
  } finally {
    state.isLooking = false;
    if (state.isAsked || state.caller || at("sign-in").hidden) state.timer = setTimeout(look, state.isAsked ? 0 : wait);
  }
}

async function enter() {
  const { json, process } = await ask("GET", "/sluice/caller");
  Object.assign(state, { caller: json, process });
  const { name: holder, access, tenants, proxy_id: proxy, version } = state.caller;
  const scope = tenants === null ? "all tenants" : `tenants ${tenants.map(visible).join(", ")}`;
  setText(at("proxy"), `${visible(proxy)}, version ${visible(version)}`);
  setText(at("caller"), `${visible(holder)}: ${access === "write" ? "may change" : "may read"} ${scope}`);
  document.body.classList.toggle("read-only", access !== "write");
  at("sign-in").hidden = true;
  at("overview").hidden = at("pause").hidden = false;
  at("leave").hidden = !state.token;
}

function leave(reason) {
  Object.assign(state, {
    token: "", caller: null, streams: null, limits: null, limit: null, process: "", other: "", fleet: null, looks: 0, isAsked: false, visit: state.visit + 1,
  });
  for (const table of [state.before, state.rates, state.histories, state.absent]) table.clear();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const rows of Object.values(tables)) rows.show([], () => "");
  for (const id of ["sums", "notices"]) at(id).replaceChildren();
  for (const id of ["counted", "streams-note", "limits-note", "fleet-note", "blocks-note", "drain-note"]) setText(at(id), "");
  for (const id of ["overview", "pause", "leave", "fleet", "named-part", "blocks-part", "drain-part"]) at(id).hidden = true;
  setText(at("caller"), "");
  at("sign-in").hidden = false;
  at("token").focus();
  problem(reason);
}

function problem(text) {
  at("problem").hidden = !text;
  setText(at("problem"), text);
  at("go-on").hidden = !state.other;
  setText(at("go-on"), state.other && `Go on with ${idOf(state.other)}`);
}

// Read all again, from the process that answers.
function goOn() {
  const { token } = state;
  leave("");
  state.token = token;
  look();
}

async function refresh() {
  const search = at("search").value;
  state.streams = (await ask("GET", "/sluice/streams", { search, limit: MOST_STREAMS })).json;
  state.limits = (await ask("GET", "/sluice/limiters", { search: search.replace(TENANT_ALONE, "$1"), limit: MOST_LIMITS })).json;
  measureStreams(state.streams);
  measureLimits(state.limits);
  showSums(state.streams);
  showStreams(state.streams);
  showLimits(state.limits);
  showNamed(await namedBy(search));
  if (state.limit) await refreshLimit();
  if (isOperator() && state.looks % 3 === 0) await refreshOperators();
  state.looks += 1;
}

const NAMED = /^(?:((?:non-)?persistent):\/\/)?([\w\-=:.]+)(?:\/([\w\-=:.]+)(?:\/(.+))?|\/)?$/;
const TENANT_ALONE = /^([\w\-=:.]+)\/$/; // "acme/" is a tenant, also one of which nothing is known

// Whether a word, which may be of a client as well, is known as a tenant's: by a value other than that for each, or streams.
async function isTenant(tenant, limits) {
  if (limits.some(({ level, written }) => level === "tenant" && written.some((value) => value.name !== "*"))) return true;
  return (await ask("GET", "/sluice/streams", { tenant, limit: 0 })).json.totals.streams > 0;
}

// The limits of the tenant, namespace or topic that a search names in full, which are not at work, and their values.
async function namedBy(search) {
  const [, domain, tenant, namespace, local] = NAMED.exec(search.trim()) ?? [];
  const isOwn = isOperator() || state.caller.tenants.includes(tenant);
  if (!tenant || (domain && !local) || !isOwn) return [];
  const topic = `${domain ?? "persistent"}://${tenant}/${namespace ?? "any"}/${local ?? "any"}`;
  const names = local ? { partitioned_topic: partitionedName(topic), topic }
    : namespace ? { namespace: `${tenant}/${namespace}` } : { tenant };
  const [found, limits] = [[], await explained(topic)];
  if (names.tenant && !search.trim().endsWith("/") && !(await isTenant(tenant, limits))) return [];
  for (const limit of limits) {
    if (!Object.hasOwn(names, limit.level)) continue;
    const named = { ...limit, name: names[limit.level] };
    const isListed = state.limits.limiters.some((each) => keyOf(each) === keyOf(named));
    if (!isListed && !(state.limits.left_out && await limiterOf(named))) found.push(named);
  }
  return found;
}

// Each limit of a topic with the values that hold; none of what is no topic, or not the caller's.
async function explained(topic) {
  try {
    const { json } = await ask("GET", "/sluice/explain", { topic });
    return json.exempt ? [] : ["publish", "dispatch"].flatMap((direction) => json[direction].map(
      ({ level, values: written }) => ({ direction, level, written, holders: written.filter((value) => value.state === "holds") })));
  } catch (error) {
    if (!(error instanceof Refused) || ![400, 403].includes(error.status)) throw error;
    return [];
  }
}

async function refreshOperators() {
  await whereServed("fleet", "/sluice/fleet", { limit: 1 }, showFleet);
  await whereServed("blocks-part", "/sluice/blocks", {}, showBlocks);
  await whereServed("drain-part", "/sluice/drain", {}, showDrain);
}

async function whereServed(part, path, query, show) {
  if (state.absent.has(part)) return;
  try {
    show((await ask("GET", path, query)).json);
    at(part).hidden = false;
  } catch (error) {
    if (!(error instanceof Refused) || (error.status !== 404 && error.status !== 403)) throw error;
    at(part).hidden = true;
    state.absent.add(part);
  }
}

// A rate is the difference of a count in two looks. A count that went back belongs to another stream, or another run.
function measured(key, now, counts) {
  const before = state.before.get(key);
  if (before && now - before.now < EVERY_MS / 2) return state.rates.get(key) ?? null; // a second request of one look
  state.before.set(key, { now, counts });
  if (!before) return null;
  const changes = counts.map((count, index) => count - before.counts[index]);
  const rates = changes.some((change) => change < 0) ? null : changes.map((change) => 1000 * change / (now - before.now));
  state.rates.set(key, rates);
  return rates;
}

const streamKey = (stream) => `${stream.connection_id} ${stream.direction} ${stream.stream_id} ${stream.topic}`;

const isHeld = (stream) => Boolean(stream.held_messages || stream.permits_wait_on || stream.observed?.held_messages);

function measureStreams(answer) {
  for (const stream of answer.streams) {
    stream.rates = measured(streamKey(stream), answer.monotonic_ms, [stream.passed_messages, stream.passed_bytes]);
  }
  forget(state.before, 4 * (MOST_STREAMS + MOST_LIMITS));
  forget(state.rates, 4 * (MOST_STREAMS + MOST_LIMITS));
}

function measureLimits(answer) {
  for (const limit of answer.limiters) {
    const key = keyOf(limit);
    limit.rates = measured(key, answer.monotonic_ms, [limit.passed_messages, limit.passed_bytes]);
    limit.use = useOf(limit);
    if (limit.use === null) continue;
    const history = state.histories.get(key) ?? [];
    state.histories.delete(key); // the table's first one is the one that was seen last the longest ago
    state.histories.set(key, history);
    if (answer.monotonic_ms - history.at(-1)?.at < EVERY_MS / 2) continue;
    history.push({ at: answer.monotonic_ms, use: limit.use, messages: limit.rates[0], bytes: limit.rates[1] });
    if (history.length > MOST_SAMPLES) history.shift();
  }
  forget(state.histories, MOST_HISTORIES);
}

function forget(table, most) {
  for (const key of table.keys()) {
    if (table.size <= most) return;
    table.delete(key);
  }
}

// The part of the limit that is in use, of messages or of bytes, whichever is fuller; null while it is not known.
function useOf(limit) {
  if (!limit.rates) return null;
  const { messages_per_s: messages, bytes_per_s: bytes } = limit.in_force;
  const parts = [[limit.rates[0], messages], [limit.rates[1], bytes]];
  const known = parts.filter(([, most]) => most !== null).map(([used, most]) => most > 0 ? used / most : used > 0 ? 1 : 0);
  return known.length ? Math.max(...known) : null;
}

// ---- Tables

function cellsOfStream(cells, stream) {
  const [topic, client, passed, held, since] = cells;
  topic.append(name(shortTopic(stream.topic), stream.topic));
  const direction = element("div", "quiet");
  topic.append(direction);
  const who = stream.subscription || stream.producer_name || `#${stream.stream_id}`;
  client.append(name(who), element("div", "quiet", visible([stream.client_role, stream.client_address].filter(Boolean).join(" at "))));
  return (now) => {
    setText(direction, now.direction);
    setText(passed, now.rates ? rate(now.rates[0]) : "");
    setText(held, now.held_messages ? `${number(now.held_messages)} · ${size(now.held_bytes)}` : "");
    setText(since, span(now.held_for_ms ?? now.permits_wait_on?.for_ms));
  };
}

function rowOfStream(cells, stream) {
  const shown = cellsOfStream(cells, stream);
  const [, , , , , waits, actions] = cells;
  let current = stream;
  const open = button("", () => openLimit({ ...(current.waits_on ?? current.permits_wait_on), direction: current.direction }), "link");
  const would = element("span");
  waits.append(open, would);
  const block = button("Block…", () => openBlock(current));
  block.setAttribute("aria-label", `Block… (${visible(shortTopic(stream.topic))})`);
  const kick = button("Kick…", () => openKick(current));
  kick.setAttribute("aria-label", `Kick… (${visible(shortTopic(stream.topic))})`);
  if (isOperator()) actions.append(block); // blocks are for operators
  actions.append(kick);
  return (now) => {
    current = now;
    shown(now);
    const obstacle = now.waits_on ?? now.permits_wait_on;
    open.hidden = !obstacle;
    if (obstacle) setText(open, `${limitName(obstacle)} (${values(obstacle.messages_per_s, obstacle.bytes_per_s)})`);
    const observed = now.observed?.held_messages ?? 0;
    setText(would, !obstacle && observed ? `observed: would hold ${number(observed)}` : "");
  };
}

function rowOfLimit(cells, limit) {
  const [title, inForce, use, headroom, streams, waiting, since] = cells;
  let current = limit;
  const open = button(limitName(limit), () => openLimit(current), "link");
  const about = element("div", "quiet");
  title.append(open, about);
  const bar = element("meter");
  bar.min = 0; bar.max = 1; bar.low = 0; bar.high = 0.9; bar.optimum = 0;
  const percent = element("span");
  use.append(bar, " ", percent);
  const here = element("div");
  const share = element("div", "quiet");
  inForce.append(here, share);
  return (now) => {
    current = now;
    setText(about, `${now.direction}, ${now.mode}, from ${placesOf(now.sources) || word(now.source)}`);
    setText(here, values(now.in_force.messages_per_s, now.in_force.bytes_per_s));
    setText(share, shareOf(now));
    bar.value = Math.min(1, now.use ?? 0);
    bar.setAttribute("aria-label", "use");
    setText(percent, now.use === null ? "…" : `${Math.round(100 * now.use)} %`);
    setText(headroom, now.use === null ? "…" : headroomOf(now));
    setText(streams, number(now.streams));
    setText(waiting, now.waiting_streams ? number(now.waiting_streams) : "");
    setText(since, span(now.waited_for_ms));
  };
}

// In a fleet what is in force is this member's share: its use and headroom are those of the share.
function shareOf({ in_force: here, messages_per_s: messages, bytes_per_s: bytes }) {
  if (here.share_messages === null && here.share_bytes === null) return "";
  return `this member's share of ${values(messages, bytes)}`;
}

function headroomOf(limit) {
  const { messages_per_s: messages, bytes_per_s: bytes } = limit.in_force;
  const left = (most, used) => most === null ? null : Math.max(0, most - used);
  return values(left(messages, limit.rates[0]), left(bytes, limit.rates[1]));
}

function rowOfNamed(cells, limit) {
  const [title, value, from] = cells;
  title.append(button(limitName(limit), () => openLimit(limit), "link"), element("div", "quiet", limit.direction));
  return ({ holders }) => {
    setText(value, holders.map((each) => wholeOf(each.limit)).join(" and ") || "no limit");
    setText(from, placesOf(holders));
  };
}

function rowOfMember(cells, member) {
  cells[0].append(name(member.name), element("span", "quiet"));
  return (now) => {
    setText(cells[0].lastChild, now.has_twin ? " several have this name" : "");
    setText(cells[1], `${span(1000 * now.heard_s_ago)} ago`);
    setText(cells[2], number(now.limits));
  };
}

function rowOfBlock(cells, block) {
  const within = block.topic || block.namespace;
  cells[0].append(name(`${block.kind} ${block.name}${within ? ` in ${within}` : ""}`));
  setText(cells[1], visible(block.reason));
  setText(cells[2], new Date(block.since).toLocaleString());
  cells[4].append(button("Unblock…", () => openUnblock(block)));
  return (now) => setText(cells[3], number(now.hits));
}

const tables = {
  streams: new Rows("streams", rowOfStream),
  limits: new Rows("limits", rowOfLimit),
  named: new Rows("named", rowOfNamed),
  members: new Rows("members", rowOfMember),
  blocks: new Rows("blocks", rowOfBlock),
  neighbours: new Rows("neighbours", cellsOfStream),
};

function showSums({ totals, degraded, draining, shares }) {
  const sums = { Streams: number(totals.streams), "Held streams": number(totals.held_streams),
    "Held messages": number(totals.held_messages), "Held bytes": size(totals.held_bytes) };
  at("sums").replaceChildren(...Object.entries(sums).map(([title, value]) => {
    const group = element("div");
    group.append(element("dt", "", title), element("dd", "", value));
    return group;
  }));
  showCounted();
  const notices = degraded.map((each) => `${each.cause}: ${each.reason}, for ${span(1000 * each.for_s)}. ${each.remedy}`);
  if (draining) notices.push(draining);
  if (shares && shares.state !== "granted") notices.push(`Shares of fleet ${shares.fleet}: ${shares.why}, since ${shares.since}`);
  const list = at("notices");
  if ([...list.children].map((item) => item.textContent).join("\n") !== notices.map(visible).join("\n")) {
    list.replaceChildren(...notices.map((text) => element("li", "", visible(text))));
  }
}

const isInFleet = () => Boolean(state.streams?.shares);
const others = () => (state.fleet?.members ?? []).map((member) => member.name).filter((its) => its !== state.fleet.member);

// The REST of a process counts its own streams. No member knows the others' admin addresses, and so it names them.
function showCounted() {
  if (!state.caller) return; // the token was forgotten meanwhile
  const named = others().slice(0, MOST_NAMED).map(visible).join(", ");
  const more = others().length > MOST_NAMED ? ` and ${number(others().length - MOST_NAMED)} more` : "";
  const elsewhere = !isInFleet() ? "" : named
    ? ` Other members count theirs, each on the page at its own admin address: ${named}${more}.`
    : " Other members of its fleet count theirs, each on the page at its own admin address.";
  setText(at("counted"), `Streams, use and waits are of this process alone, ${visible(state.caller.proxy_id)}.${elsewhere}`);
}

function showStreams(answer) {
  const isHeldOnly = at("held-only").checked;
  const shown = isHeldOnly ? answer.streams.filter(isHeld) : answer.streams;
  tables.streams.show(shown, streamKey);
  const of = isHeldOnly ? "held stream" : "stream";
  const all = isHeldOnly ? Math.max(shown.length, answer.totals.held_streams) : answer.totals.streams;
  const more = all > shown.length ? ` of ${number(all)}, those that hold most; search to see others` : "";
  setText(at("streams-note"), shown.length ? `${plural(shown.length, of)}${more}` : `No ${of}${at("search").value ? " with this name" : ""}.`);
}

function showLimits(answer) {
  const order = (limit) => [limit.waiting_streams ? 1 : 0, limit.use ?? 0];
  answer.limiters.sort((one, other) => order(other)[0] - order(one)[0] || order(other)[1] - order(one)[1]);
  tables.limits.show(answer.limiters, keyOf);
  const more = answer.left_out ? ` of ${number(answer.limiters.length + answer.left_out)}, the fullest; search to see others` : "";
  setText(at("limits-note"), answer.limiters.length ? `${plural(answer.limiters.length, "limit")} at work${more}` : `No limit${at("search").value ? " with this name" : ""} is at work.`);
}

function showNamed(limits) {
  at("named-part").hidden = !limits.length;
  tables.named.show(limits, keyOf);
  setText(at("named-note"), limits.length ? `These limit no stream of this process now. ${knownOf(word(limits[0].level).split(" ").at(-1))}` : "");
}

// What the answer to the same search tells about streams of a name.
const knownOf = (noun) => state.streams.totals.streams ? "One that is set holds at once for the streams that it is for."
  : `Whether there is such a ${noun}, the proxy does not know.`;

function showFleet(fleet) {
  state.fleet = fleet;
  showCounted();
  const coordinator = fleet.coordinator || fleet.last_coordinator || "none";
  const listed = fleet.members?.length ?? 0;
  const known = `; ${plural(fleet.members_known, "member")}${listed && listed < fleet.members_known ? `, of which ${number(listed)} are listed` : ""}`;
  setText(at("fleet-note"), visible(`${fleet.fleet}: this is ${fleet.member}, ${fleet.state}. Coordinator: ${coordinator}${known}. ${fleet.problem}`));
  at("members").hidden = !listed;
  tables.members.show(fleet.members ?? [], (member) => `${member.name} ${member.incarnation}`);
}

function showBlocks({ blocks }) {
  tables.blocks.show(blocks.slice(0, MOST_BLOCKS), (block) => JSON.stringify([block.kind, block.name, block.topic, block.namespace]));
  at("blocks").hidden = !blocks.length;
  const more = blocks.length > MOST_BLOCKS ? `; the first ${MOST_BLOCKS} are shown` : "";
  setText(at("blocks-note"), blocks.length ? `${plural(blocks.length, "block")}${more}` : "Nothing is blocked.");
}

function showDrain(drain) {
  const left = `${plural(drain.connections, "connection")}, ${plural(drain.streams, "stream")}`;
  setText(at("drain-note"), `${word(drain.phase)}; ${left}${drain.moved_connections ? `; ${number(drain.moved_connections)} have gone on elsewhere` : ""}`);
  at("drain").disabled = drain.phase !== "serving";
}

// ---- One limit

const NOT_READ = { whole: null, from: null, target: null, reach: "", values: [], source: "", author: "", takesBack: "", condition: {} };
const NOT_SEEN = { streams: null, waiting: 0, isShared: false, isAtWork: false };

const PARTITION = /^(.*)-partition-(\p{Nd}{1,10})$/su;
const MOST_PARTITION = 2 ** 31 - 1;

// Decimal digits of a script are ten characters in a row.
function digitOf(char) {
  let digit = 0;
  while (digit < 9 && /\p{Nd}/u.test(String.fromCharCode(char.charCodeAt(0) - digit - 1))) digit += 1;
  return digit;
}

// A topic's name without the suffix of a partition, as the proxy and Java read one: "t-partition-01" has none.
function partitionedName(its) {
  const [, partitioned, digits] = PARTITION.exec(its) ?? [];
  if (!partitioned || /[^\0-\uffff]/u.test(digits)) return its;
  const index = Number([...digits].map(digitOf).join(""));
  return String(index).length === digits.length && index <= MOST_PARTITION ? partitioned : its;
}

// By its level and name alone, of a limit that is not at work; the proxy knows the target of one that is.
const settingName = ({ level, name: its }) => level === "exempt" ? ""
  : ["topic", "subscription"].includes(level) ? partitionedName(its) : its;
const reachOfName = (limit) => limit.level === "exempt" ? "each topic" : settingName(limit) === limit.name ? "this limit" : "each partition";
const targetOf = (limit) => ({ setting: limit.level, name: settingName(limit), reach: reachOfName(limit) });

async function openLimit({ direction, level, name: its }) {
  state.limit = { direction, level, name: its, value: NOT_READ, use: NOT_SEEN, hour: [], hourAt: -STEP_MS, isChanging: false };
  setText(at("limit-title"), `${limitName(state.limit)}, ${direction}`);
  tables.neighbours.show([], () => "");
  for (const id of ["limit-note", "neighbours-note", "chart-note", "effect"]) setText(at(id), "");
  at("change").hidden = true;
  outcome("limit", "");
  at("limit").showModal();
  await attempt("limit", refreshLimit);
}

// The value that a change begins with, of a limit that is not at work: the caller's layer alone is changed.
const baseOf = (set) => isOperator() ? (set.own ?? set.beneath)?.limit ?? {} : set.limit;

// The layer whose value at the target the caller may take back: its own, or for an operator a tenant's.
function takenBackOf({ own, origin, hidden }) {
  if (own) return isOperator() ? "rest" : "tenant";
  return isOperator() && [origin, ...hidden.map((each) => each.origin)].includes("tenant") ? "tenant" : "";
}

// The whole value in force, what it is from, and what is set for this limit alone.
async function valueOf({ direction, level, name: its }) {
  const value = await unlessAbsent(ask("GET", "/sluice/limiters/value", { direction, level, name: its }));
  const named = value ? value.json.target : targetOf({ level, name: its });
  let target = named && { direction, setting: named.setting, name: named.name };
  let set = null;
  try {
    set = target && await unlessAbsent(ask("GET", "/sluice/limits", target));
  } catch (error) {
    if (error.status !== 403) throw error;
    target = null; // a limit of roles, addresses …, and the token is a tenant's
  }
  const whole = value?.json.limit ?? set?.json.limit ?? null;
  return {
    whole, target, reach: named?.reach, from: target && (value?.json.base ?? (set && baseOf(set.json))), values: value?.json.values ?? [],
    source: set?.json.origin ?? "", author: set?.json.author ?? "", takesBack: set ? takenBackOf(set.json) : "",
    condition: set ? { "If-Match": set.tag } : { "If-None-Match": "*" },
  };
}

async function readLimit() {
  const limit = state.limit;
  if (!limit) return; // the dialog was closed meanwhile
  const before = limit.value;
  const value = await valueOf(limit);
  if (limit !== state.limit || limit.value !== before) return; // or another look has read it
  limit.value = value;
  const { from, takesBack } = value;
  at("change").hidden = !from;
  if (!from) return;
  for (const key of FIELDS) fieldOf(key).value = shownPart(key, from[key]);
  at("change-mode").value = from.mode ?? "enforce";
  at("change-mode").querySelector("option:last-child").disabled = limit.direction !== "publish";
  at("take-back").hidden = !takesBack;
  showEffect();
}

async function unlessAbsent(asking) {
  try {
    return await asking;
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    return null;
  }
}

// The values that are written for the limit and hold, each with its setting, name, layer and plan.
function sourceOf({ values: written, source, author, target }) {
  const byAuthor = author ? `, by ${visible(author)}` : "";
  const holders = written.filter((value) => value.state === "holds");
  if (!holders.length) return source ? `set by ${word(source)}${byAuthor}` : "";
  const shown = holders.map((value) => placeOf(value, target && isAt(value, target) && value.origin === source ? byAuthor : ""));
  return `from ${shown.join(" and ")}`;
}

// What a change here is for: the limit may have its value from a pattern, a plan or a wider setting, and be one of several.
function reachOf({ target, from, reach }) {
  if (!target) return "an operator's token changes it";
  if (!from) return "no stream is within it, and its name alone gives no value to change";
  const named = `${word(target.setting)} ${visible(shortTopic(target.name))}`.trim();
  if (reach === "each partition") return `a change here is for ${named}, each of its partitions`;
  if (reach === "each topic") return `a change here is for ${target.name ? `${named} on each topic, of any tenant` : "each of Pulsar's own topics, of any tenant"}`;
  return `a change here is for ${named} alone`;
}

async function limiterOf({ direction, level, name: its }) {
  const { json } = await ask("GET", "/sluice/limiters", { direction, level, name: its, limit: MOST_LIMITS });
  measureLimits(json);
  return json.limiters.find((each) => each.name === its) ?? null;
}

async function refreshLimit() {
  const limit = state.limit;
  if (!limit) return;
  if (limit.value === NOT_READ) {
    await readLimit();
    outcome("limit", ""); // why it could not be read before
  }
  const { direction, level, name: its } = limit;
  const found = await limiterOf(limit);
  const { target } = limit.value;
  const within = found || !target ? { direction, level, name: its } : target; // the streams that it would be for
  const { json } = await ask("GET", "/sluice/streams", { ...within, limit: 50 });
  if (limit !== state.limit) return;
  measureStreams(json);
  json.streams.sort((one, other) => (other.rates?.[0] ?? 0) - (one.rates?.[0] ?? 0));
  tables.neighbours.show(json.streams, streamKey);
  setText(at("neighbours-note"), `${plural(json.totals.streams, "stream")} of this process, ${number(json.totals.held_streams)} of them held${json.left_out ? "; 50 are shown" : ""}`);
  await readHour(limit, json.monotonic_ms);
  if (limit !== state.limit) return;
  const share = found ? found.in_force.share_messages ?? found.in_force.share_bytes : null;
  const inForce = found && values(found.in_force.messages_per_s, found.in_force.bytes_per_s);
  const { whole, from } = limit.value;
  const here = !found ? `Not at work now${from ? `; ${whole && KINDS.some((kind) => kind in whole) ? wholeOf(whole) : "no limit is set"}` : ""}`
    : share === null ? `${inForce} in force, ${found.mode}` : `${inForce} in force in this member, its share of ${wholeOf(whole)}`;
  setText(at("limit-note"), `${[here, sourceOf(limit.value), reachOf(limit.value)].filter(Boolean).join("; ")}.`);
  limit.use = { streams: json.totals.streams, waiting: found?.waiting_streams ?? 0, isShared: share !== null, isAtWork: Boolean(found) };
  showEffect();
  showChart(limit, json.monotonic_ms);
}

// The proxy keeps a sample of each minute of the last hour. Since its latest one, the page has its own of each look.
async function readHour(limit, now) {
  if (now - limit.hourAt < STEP_MS) return;
  const { direction, level, name: its } = limit;
  const { json } = await ask("GET", "/sluice/limiters/history", { direction, level, name: its });
  limit.hourAt = now;
  limit.hour = json.samples.map((sample) => (
    { at: now - 1000 * sample.ago_s, use: sample.use, messages: sample.messages_per_s, bytes: sample.bytes_per_s }));
}

function showChart(limit, now) {
  const hour = limit.hour.filter((sample) => now - sample.at < HOUR_MS);
  const since = hour.at(-1)?.at ?? -Infinity;
  const known = [...hour, ...(state.histories.get(keyOf(limit)) ?? []).filter((sample) => sample.at > since)];
  const first = known[0]?.at ?? now;
  const most = Math.max(1.1, ...known.map((sample) => sample.use));
  const height = (use) => 116 - 112 * use / most;
  const points = known.map((sample) => `${(600 * (1 - (now - sample.at) / HOUR_MS)).toFixed(1)},${height(sample.use).toFixed(1)}`);
  at("chart-line").setAttribute("points", points.join(" "));
  for (const end of ["y1", "y2"]) at("chart-limit").setAttribute(end, height(1).toFixed(1));
  const latest = known.at(-1);
  setText(at("chart-note"), latest
    ? `The last hour, of which ${span(now - first)} are known, minute by minute: now ${Math.round(100 * latest.use)} % of the limit (${values(latest.messages, latest.bytes)}), at most ${Math.round(100 * Math.max(...known.map((sample) => sample.use)))} %. The dashed line is the limit.`
    : "No use is known yet.");
}

const KINDS = ["messages", "bytes"];
const FIELDS = KINDS.flatMap((kind) => [kind, `burst_${kind}`, `peak_${kind}`]);
const fieldOf = (key) => at(`change-${key.replace("_", "-")}`);
const isOfBytes = (key) => key.endsWith("bytes");

function wanted() {
  const body = { ...state.limit.value.from };
  for (const key of FIELDS) {
    const text = fieldOf(key).value.trim();
    if (shownPart(key, text) === shownPart(key, body[key])) continue;
    if (text) body[key] = text;
    else delete body[key];
  }
  for (const kind of KINDS) if (!(kind in body)) for (const part of ["burst", "peak"]) delete body[`${part}_${kind}`];
  const mode = at("change-mode").value;
  if (mode !== (body.mode ?? "enforce")) body.mode = mode;
  return body;
}

const CHECKS = {
  rate: [readRate, ["no rate: write a whole number above 0 per period, as 500/s, 30/min or 5/30s", "no rate: write whole bytes above 0 per period, as 10MB/s or 500KB/min"]],
  burst: [readBurst, ["no number of messages above 0", "no size above 0: write 64KB, 10MB or 1GiB"]],
};

// What is wrong with a rate or a burst that is beyond the proxy's bounds.
const boundOf = (key, { period = 0n }) => period > LONGEST_PERIOD ? `too long a period: at most ${LONGEST_PERIOD / SECOND}s`
  : `too much: at most ${MOST_TOKENS}${isOfBytes(key) ? " bytes" : ""}`;

// Why the proxy would refuse what is written, as [field, reason]; null for what it takes. Values as they were are its own.
function problemOf(limit) {
  const { from } = limit.value;
  const written = Object.fromEntries(FIELDS.map((key) => [key, fieldOf(key).value.trim()]));
  const changed = new Set(FIELDS.filter((key) => written[key] && shownPart(key, written[key]) !== shownPart(key, from[key])));
  for (const key of changed) {
    const [read, wrong] = CHECKS[key.startsWith("burst_") ? "burst" : "rate"];
    if (read(written[key], isOfBytes(key)) !== null) continue;
    const beyond = read(written[key], isOfBytes(key), true);
    return [key, `${word(key)} ${visible(written[key])} is ${beyond === null ? wrong[isOfBytes(key) ? 1 : 0] : boundOf(key, beyond)}`];
  }
  for (const kind of KINDS) {
    const [burst, peak] = [`burst_${kind}`, `peak_${kind}`];
    for (const key of [burst, peak]) if (changed.has(key) && !written[kind]) return [kind, `${word(key)} needs ${kind}: without a rate it limits nothing`];
    if (!written[kind] || !written[peak]) continue;
    if (!written[burst]) return [burst, `${word(peak)} needs ${word(burst)}: the peak holds while that burst lasts`];
    const [sustained, highest] = [readRate(written[kind], isOfBytes(kind)), readRate(written[peak], isOfBytes(kind))];
    if (sustained && highest && highest.amount * sustained.period <= sustained.amount * highest.period) return [peak, `${word(peak)} ${visible(written[peak])} is not above ${kind} ${visible(written[kind])}`];
  }
  const isEmptied = !written.messages && !written.bytes && KINDS.some((kind) => kind in from);
  return isEmptied ? [KINDS.find((kind) => kind in from), "write messages, bytes or both; to hold nothing, leave them and observe only"] : null;
}

// What a section of the configuration says, in one line, with its mode.
function wholeOf(section) {
  const others = Object.keys(section ?? {}).filter((key) => key !== "mode" && !FIELDS.includes(key));
  const parts = [...FIELDS, ...others].map((key) => [key, shownPart(key, section?.[key])]).filter(([, text]) => text);
  if (!parts.length) return "no limit";
  return [...parts, ["mode", section.mode ?? "enforce"]].map(([key, text]) => `${word(key)} ${visible(text)}`).join(", ");
}

const isOne = (count) => count === 1 ? "is" : "are";
function withinOf({ use: { streams, waiting, isAtWork }, value: { reach } }) {
  if (streams === null) return "";
  if (streams && !isAtWork) return `${plural(streams, "stream")} of this process would be within ${reach === "this limit" ? "it" : "such limits"}.`;
  const [its, others] = reach === "this limit" ? ["it", ""] : ["the limit that is shown", "; the change is for others, too"];
  if (!streams) return `No stream of this process is within ${its} now${others}.`;
  return `${plural(streams, "stream")} of this process ${isOne(streams)} within ${its}, ${number(waiting)} of them waiting now${others}.`;
}

function showEffect() {
  const limit = state.limit;
  if (!limit?.value.from) return;
  const [wrong, reason] = problemOf(limit) ?? [];
  for (const key of FIELDS) fieldOf(key).setAttribute("aria-invalid", String(key === wrong));
  if (wrong) {
    setText(at("effect"), `This cannot be set: ${reason}.`);
    at("apply").disabled = true;
    return;
  }
  const [before, after] = [wholeOf(limit.value.from), wholeOf(wanted())];
  const change = before === after ? `No change yet: ${before}` : `From ${before} to ${after}`;
  const whole = limit.use.isShared ? ", for all members together" : "";
  setText(at("effect"), [`${change}${whole}.`, withinOf(limit), ...(before === after ? [] : staysOf(limit))].filter(Boolean).join(" "));
  at("apply").disabled = before === after || limit.isChanging;
}

// What stays as it is beside a change, and so decides on what it does.
function* staysOf({ value: { values: written } }) {
  const own = isOperator() && written.find((value) => value.origin === "tenant" && value.state !== "no limit"); // the narrowest
  if (own) yield `The tenant's own value, ${wholeOf(own.limit)}, stays: the stricter of both holds.`;
  if (state.streams?.shares?.changes === "member") {
    yield "The change is made in this member alone, as no topic carries it to others. Make it in each; until then the lowest value holds.";
  }
}

// Multiply the rates of all fields, exactly: "3MB/s" becomes "1.5MB/s", and "1/s" becomes "30/min". Bursts stay.
function scale(factor) {
  const changed = new Map();
  for (const key of KINDS.flatMap((kind) => [kind, `peak_${kind}`])) {
    const text = fieldOf(key).value.trim();
    if (!text) continue;
    const before = readRate(text, isOfBytes(key));
    if (!before) return outcome("limit", `${word(key)} ${visible(text)} is no rate, as ${isOfBytes(key) ? "10MB/s" : "500/s or 30/min"}: nothing was changed.`);
    const after = scaled(before, factor);
    const written = after && rateText(after);
    if (!written) return outcome("limit", `${word(key)} ${visible(text)}: ${factor < 1 ? "half" : "twice"} of that cannot be written as a rate; nothing was changed.`);
    changed.set(key, written);
    const burst = fieldOf(`burst_${key}`.replace("burst_peak_", "burst_"));
    if (KINDS.includes(key) && after.period !== before.period && !burst.value.trim()) {
      // The default is a part of the period's worth: a longer period would let more come at once.
      const kept = atLeastOne(usualBurst(before) / 2n);
      if (kept !== usualBurst(after)) changed.set(`burst_${key}`, isOfBytes(key) ? sizeText(kept, before.isBinary) : String(kept));
    }
  }
  for (const [key, text] of changed) fieldOf(key).value = text;
  outcome("limit", changed.size ? "" : "There is no rate to change.");
  showEffect();
}

function outcome(dialog, text) {
  setText(at(dialog).querySelector(".outcome"), text);
}

// Say that a change is done once what holds now is shown. It is done, whatever comes of reading that.
const afterwards = (dialog, done, readAgain) => attempt(dialog, async () => {
  await readAgain();
  outcome(dialog, done);
}, (error) => outcome(dialog, `${done} What holds now could not be read: ${error.message}`));

async function attempt(dialog, work, onRefusal = () => {}) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    outcome(dialog, error.message);
    onRefusal(error);
  }
}

function sourceBeneath(beneath, own) {
  if (!isAt(beneath, own)) return `from ${placeOf(beneath)}`;
  return beneath.origin === "rest" ? "the operator's value" : `the value of the ${word(beneath.origin)}${beneath.plan ? `, plan ${visible(beneath.plan)}` : ""}`;
}

// A tenant's own value of a wider setting, which stays beside the operator's when its narrow one is taken back.
const wideOwnOf = ({ value: { values: written, target } }) =>
  written.find((value) => value.origin === "tenant" && value.state !== "no limit" && !isAt(value, target));

// What a take back changes: from what is set, or from what holds where that limits nothing, to what holds without it.
function* takenBackEffect(limit, layer, { own, beneath }, now) {
  const wide = layer === "tenant" ? wideOwnOf(limit) : null;
  const to = beneath ? `${wholeOf(beneath.limit)}, ${sourceBeneath(beneath, own)}`
    : wide ? `${wholeOf(wide.limit)}, from ${placeOf(wide)}` : `no limit: no other value is set for this ${word(limit.level)}`;
  const by = own.author ? `, set by ${visible(own.author)}` : "";
  const isNothing = !Object.keys(own.limit).length && Object.keys(now ?? {}).length;
  yield `From ${isNothing ? `${wholeOf(now)}: what is set here${by && `${by},`} limits nothing, and counts as not set,` : `${wholeOf(own.limit)}${by}`} to ${to}.`;
  yield withinOf(limit);
  if (layer === "rest") yield* staysOf(limit);
  else if (wide && beneath) yield `The tenant's own value of ${placeOf(wide)}, ${wholeOf(wide.limit)}, stays: the stricter of both holds.`;
}

async function openTakeBack() {
  const limit = state.limit;
  const query = { ...limit.value.target, layer: limit.value.takesBack };
  const read = () => unlessAbsent(ask("GET", "/sluice/limits", query));
  const isGone = "It has changed meanwhile: nothing of this is set any more.";
  // What is set, and all values of the limit: which of them hold then, or stay, decides on what is shown.
  const look = async () => {
    const set = await read();
    return set?.json.own ? { set, value: await valueOf(limit) } : null;
  };
  const decisive = ({ set: { json: { own, beneath } }, value }) => JSON.stringify([own.limit, own.author, beneath, value.values]);
  const effect = ({ set, value }) => [...takenBackEffect({ ...limit, value }, query.layer, set.json, value.from)].filter(Boolean).join(" ");
  await attempt("limit", async () => {
    let shown = await look();
    if (limit !== state.limit) return;
    if (!shown) { await readLimit(); return outcome("limit", isGone); }
    confirmed(`Take back: ${limitName(limit)}, ${limit.direction}`, effect(shown), "Take back", async () => {
      const latest = await look();
      if (!latest) throw new Refused(0, isGone, 0);
      if (decisive(latest) !== decisive(shown)) { // of a value beneath there is no tag to compare
        shown = latest;
        setText(at("confirm-effect"), effect(shown));
        throw new Refused(0, "It has changed meanwhile, and nothing was done. What is changed now is shown.", 0);
      }
      const { json: taken } = await ask("DELETE", "/sluice/limits", query, { headers: { "If-Match": latest.set.tag } });
      const holds = taken.in_force;
      if (!holds) return "Taken back: no limit is set here any more.";
      return `Taken back: ${wholeOf(holds.limit)}${isAt(holds, shown.set.json.own) ? "" : `, from ${placeOf(holds)},`} holds again.`;
    }, async () => {
      if (limit !== state.limit) return;
      outcome("limit", ""); // of a change before, which does not hold any more
      await readLimit();
      await refreshLimit();
    });
  });
}

// Set the value, unless another than the one that the change begins with holds by now: of a pattern, a plan or a wider
// setting there is no tag to compare. Returns whether it was set.
async function setLimit(limit, body) {
  const { from, target, condition } = limit.value;
  if (JSON.stringify((await valueOf(limit)).from) !== JSON.stringify(from)) return false;
  try {
    await ask("PUT", "/sluice/limits", target, { body, headers: condition });
    return true;
  } catch (error) {
    if (error.status !== 412) throw error;
    return false;
  }
}

async function applyLimit(event) {
  event.preventDefault();
  const limit = state.limit;
  const { from } = limit.value;
  if (!from || at("apply").disabled) return;
  const to = wanted();
  limit.isChanging = at("apply").disabled = true;
  await attempt("limit", async () => {
    const isSet = await setLimit(limit, to);
    if (limit !== state.limit) return;
    const done = isSet ? `Changed from ${wholeOf(from)} to ${wholeOf(to)}.`
      : "It has changed meanwhile, and nothing was done. The value that holds now is shown.";
    await afterwards("limit", done, async () => { await readLimit(); await refreshLimit(); });
  });
  limit.isChanging = false;
  showEffect();
}

// ---- Blocks, kicks and the drain

// What each dialog does: another object from one choice, or one opening, to the next.
const chosen = { block: null, kick: null, confirm: null };

function openBlock(stream) {
  const narrowed = (kind, its) => ({ body: { kind, name: its, topic: stream.topic }, query: { topic: stream.topic, search: its }, text: `${kind} ${its} on this topic`, most: "at most " });
  const choices = [{ body: { kind: "topic", name: stream.topic }, query: { topic: stream.topic }, text: `topic ${shortTopic(stream.topic)}` }];
  if (stream.producer_name) choices.unshift(narrowed("producer", stream.producer_name));
  if (stream.subscription) choices.unshift(narrowed("subscription", stream.subscription));
  if (stream.client_role) choices.push({ body: { kind: "role", name: stream.client_role }, query: { role: stream.client_role }, text: `role ${stream.client_role}, everywhere` });
  const host = hostOf(stream.client_address);
  if (host) choices.push({ body: { kind: "address", name: host }, query: { address: host }, text: `address ${host}, everywhere` });
  offer("block", choices, chooseBlock);
}

function offer(dialog, choices, chooseIt) {
  const legend = at(`${dialog}-choices`).firstElementChild;
  at(`${dialog}-choices`).replaceChildren(legend, ...choices.map((choice) => {
    const label = element("label");
    const radio = element("input");
    Object.assign(radio, { type: "radio", name: dialog, required: true });
    radio.addEventListener("click", () => chooseIt(choice)); // a second click asks again, where there was no answer
    const text = element("span");
    text.append(name(choice.text));
    label.append(radio, text);
    return label;
  }));
  chosen[dialog] = null;
  at(`${dialog}-apply`).disabled = true;
  setText(at(`${dialog}-effect`), `Choose what to ${dialog}; its effect is shown here first.`);
  outcome(dialog, "");
  at(dialog).showModal();
}

// Show the effect of a choice. The button is for the choice whose effect is shown, and for none before that.
async function choose(dialog, choice, effectOf) {
  chosen[dialog] = choice;
  at(`${dialog}-apply`).disabled = true;
  setText(at(`${dialog}-effect`), "Counting…");
  outcome(dialog, "");
  await attempt(dialog, async () => {
    const effect = await effectOf();
    if (chosen[dialog] !== choice) return;
    setText(at(`${dialog}-effect`), effect);
    at(`${dialog}-apply`).disabled = false;
  }, () => {
    if (chosen[dialog] === choice) setText(at(`${dialog}-effect`), "The effect is not known: choose again.");
  });
}

// Do what a form's button says: once, however often it is pressed. After a refusal it may be pressed again.
async function apply(event, dialog, work) {
  event.preventDefault();
  const press = at(`${dialog}-apply`);
  const choice = chosen[dialog];
  if (press.disabled) return;
  press.disabled = true;
  await attempt(dialog, work, () => { if (chosen[dialog] === choice) press.disabled = false; });
}

const chooseBlock = (choice) => choose("block", choice, async () => {
  const { totals } = (await ask("GET", "/sluice/streams", { ...choice.query, limit: 0 })).json;
  return `From not blocked to blocked: ${choice.most ?? ""}${plural(totals.streams, "stream")} of ${visible(choice.text)} end${totals.streams === 1 ? "s" : ""} now, ${number(totals.held_streams)} of them held; new ones are refused until it is unblocked.${BLOCKS_ELSEWHERE[state.streams?.shares?.changes] ?? ""}`;
});

const BLOCKS_ELSEWHERE = {
  fleet: " The other members block it as well; their streams are not counted here.",
  member: " The other members do not block it, as no topic carries it to them.",
};

const applyBlock = (event) => apply(event, "block", async () => {
  const { json } = await ask("POST", "/sluice/blocks", {}, { body: { ...chosen.block.body, reason: at("block-reason").value } });
  await afterwards("block", `Blocked. ${ended(json.ended)} ended.`, refreshOperators);
});

function openKick(stream) {
  const tenant = stream.topic.split("/")[2];
  const choices = [
    { query: { topic: stream.topic }, text: `topic ${shortTopic(stream.topic)}` },
    { query: { tenant }, text: `tenant ${tenant}` },
  ];
  if (!state.caller.tenants) {
    choices.unshift({ query: { connection: stream.connection_id }, text: `connection ${stream.connection_id} from ${stream.client_address}` });
    if (stream.client_role) choices.push({ query: { role: stream.client_role }, text: `role ${stream.client_role}, everywhere` });
    const host = hostOf(stream.client_address);
    if (host) choices.push({ query: { address: host }, text: `address ${host}, everywhere` });
  }
  offer("kick", choices, chooseKick);
}

const ended = ({ connections, streams }) => `${plural(connections, "connection")} and ${plural(streams, "stream")}`;

const chooseKick = (choice) => choose("kick", choice, async () => {
  const { json } = await ask("POST", "/sluice/kick", { ...choice.query, dry_run: 1 });
  return `${ended(json)} of ${visible(choice.text)} end now; clients may come again at once.${isInFleet() ? " Those at other members stay: kick them on the pages of these." : ""}`;
});

const applyKick = (event) => apply(event, "kick", async () => {
  const { json } = await ask("POST", "/sluice/kick", chosen.kick.query);
  outcome("kick", `Kicked. ${ended(json)} ended.`);
});

function confirmed(title, effect, press, work, readAgain = refreshOperators) {
  setText(at("confirm-title"), title);
  setText(at("confirm-effect"), effect);
  setText(at("confirm-apply"), press);
  at("confirm-apply").disabled = false;
  chosen.confirm = work;
  outcome("confirm", "");
  at("confirm-form").onsubmit = (event) => apply(event, "confirm", async () => {
    await afterwards("confirm", await work(), readAgain);
  });
  at("confirm").showModal();
}

function openUnblock(block) {
  const { kind, name: its, topic, namespace } = block;
  confirmed(`Unblock ${kind} ${visible(its)}`, `From blocked since ${new Date(block.since).toLocaleString()} to not blocked. It has refused or ended ${number(block.hits)} so far.`, "Unblock", async () => {
    const { json } = await ask("DELETE", "/sluice/blocks", { kind, name: its, topic, namespace });
    return visible(json.unblocked ? `Unblocked. ${json.note}` : "It was not blocked any more.");
  });
}

async function openDrain() {
  const drain = (await ask("GET", "/sluice/drain")).json;
  confirmed("Drain this process", `From ${word(drain.phase)} to draining: ${plural(drain.connections, "connection")} with ${plural(drain.streams, "stream")} are asked to go on at other proxies, and /readyz is 503. The process runs on. A drain is not taken back.`, "Drain", async () => {
    const { json } = await ask("POST", "/sluice/drain");
    return `Draining: ${word(json.phase)}.`;
  });
}

// ---- The page

function start() {
  at("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = at("token").value.trim();
    at("token").value = "";
    look();
  });
  at("leave").addEventListener("click", () => leave(""));
  at("go-on").addEventListener("click", goOn);
  at("pause").addEventListener("click", () => {
    state.isPaused = !state.isPaused;
    at("pause").setAttribute("aria-pressed", String(state.isPaused));
    setText(at("pause"), state.isPaused ? "Go on" : "Pause");
    look();
  });
  at("find").addEventListener("submit", (event) => { event.preventDefault(); look(); });
  at("search").addEventListener("change", look);
  at("held-only").addEventListener("change", look);
  at("change").addEventListener("submit", applyLimit);
  at("change").addEventListener("input", showEffect);
  at("raise").addEventListener("click", () => scale(2));
  at("lower").addEventListener("click", () => scale(0.5));
  at("observe").addEventListener("click", () => { at("change-mode").value = "observe"; showEffect(); });
  at("take-back").addEventListener("click", openTakeBack);
  at("block-form").addEventListener("submit", applyBlock);
  at("kick-form").addEventListener("submit", applyKick);
  at("drain").addEventListener("click", () => openDrain().catch((error) => problem(error.message)));
  at("limit").addEventListener("close", () => { state.limit = null; });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  }
  look();
}

start();
