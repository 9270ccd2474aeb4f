// What the crossover widget says and draws of a state: the same as generate/render/readings.py, held so by tests.

import {
  cdiv, chooseTile, contractedBlocks, expectedResident, fillingSplit, largestSplit, outputTiles, sharedMemoryBytes,
  splitFactor, splitTime,
} from "./plan.js";

const OPS = ["forward", "dx", "dw"];
const COLUMNS = 22;
const [LEFT, RIGHT, TOP, BOTTOM, HIGHEST] = [34, 352, 8, 200, 2];
const NEAR_OCTAVES = 2;

const three = (value) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

function scaled(value, base, units) {
  let power = 0;
  while (value >= base && power < units.length - 1) {
    value /= base;
    power += 1;
  }
  return `${power ? three(value) : value} ${units[power]}`;
}

const flops = (value) => scaled(value, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"]);
const size = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

export function readings(data, state) {
  const gpu = data.gpus.find(({ id }) => id === state.gpu);
  const { T, K, N, bytes } = state;
  const shape = [T, K, N];
  const { words } = data;
  const { device } = gpu;
  const tile = tileOf(data, state, device);
  const tiles = Object.fromEntries(OPS.map((op) => [op, outputTiles(op, shape, turned(tile, op))]));
  const sms = gpu.sm_count;

  const say = (key, given) => words[key].replace(/\{(\w+)\}/g, (_, name) => given[name]);
  const units = (number) => `${number} ${number === 1 ? gpu.units.slice(0, -1) : gpu.units}`;

  const work = 2 * T * K * N;
  const traffic = (T * K + T * N) * bytes + 4 * K * N;
  const intensity = work / traffic;
  const peak = gpu.peak_tflops[bytes] ?? null;
  const known = peak !== null && gpu.bandwidth_tbps !== null;
  const ridge = known ? peak / gpu.bandwidth_tbps : null;
  const need = sharedMemoryBytes("dw", tile, bytes);
  const limit = device ? device.shared_memory_per_program_bytes : need;
  const planned = Boolean(device) && need <= limit;
  const dw = tiles.dw;
  const none = words.not_computed;

  const side = ridge === null ? "bare" : intensity >= ridge ? "above" : "below";
  const show = {
    flops: flops(work),
    state: say("state", { T, K, N, gpu: gpu.name, bytes }),
    origin: say(gpu.recording ? "recorded" : "datasheet", { recording: gpu.recording }),
    tile: `${tile.block_k} × ${tile.block_n}, ${tile.block_t} of T at a time`,
    blocks: `${contractedBlocks("dw", shape, tile)}`,
    sms: units(sms),
    tiles: `${dw}`,
    fills_units: `${fillingSplit(dw, sms)}`,
    intensity: say(side, { intensity: three(intensity) }),
    ridge: known
      ? say(gpu.recording ? "ridge_recorded" : "ridge_datasheet",
        { ridge: ridge.toFixed(0), peak: three(peak), bandwidth: three(gpu.bandwidth_tbps) })
      : words.ridge_unknown,
    resident: none, slots: none, waves: none, share: none, fills_slots: none, planned: none, workspace: none,
    chip_planned: "", measured: "",
  };
  const draw = {};
  const rows = [];
  for (const op of OPS) {
    show[`tiles_${op}`] = `${tiles[op]}`;
    draw[`bar_${op}`] = { width: along(tiles[op]).toFixed(1) };
  }
  draw.mark_units = mark(sms);
  draw.mark_slots = mark(sms);
  const when = { planned, measured: false, recorded: Boolean(gpu.recording) };

  if (!planned) {
    const busy = Math.min(dw, sms);
    show.chip_plain = say("chip_unplanned", { programs: count(dw, words.program), busy, sms: units(sms) });
    Object.assign(draw, chip("plain", busy, sms, 1));
    if (device) {
      show.sentence = say("no_fit", { gpu: gpu.name, need: size(need), limit: size(limit) });
    } else {
      const key = dw < sms ? "unplanned_starved" : "unplanned_enough";
      const given = { tiles: count(dw, words.tile), sms: units(sms), idle: units(Math.max(0, sms - dw)) };
      show.sentence = `${say(key, given)} ${words.unplanned}`;
    }
    return { show, draw, rows, when };
  }

  const blocks = contractedBlocks("dw", shape, tile);
  const resident = expectedResident("dw", tile, bytes, device);
  const slots = sms * resident;
  const splitT = splitFactor(dw, blocks, sms, resident);
  const most = largestSplit(blocks);
  const times = Array.from({ length: most }, (_, index) => splitTime(index + 1, dw, blocks, sms, resident));
  const over = times.map((time) => time / times[0]);
  const last = lastWave(dw, slots);
  draw.mark_slots = mark(slots);
  Object.assign(show, {
    resident: `${resident}`,
    slots: `${slots}`,
    waves: count(cdiv(dw, slots), words.wave),
    share: percent(last / slots),
    fills_slots: `${fillingSplit(dw, slots)}`,
    planned: `${splitT}`,
    workspace: splitT > 1 ? size(4 * splitT * K * N) : words.no_workspace,
  });
  for (const [name, split] of [["plain", 1], ["planned", splitT]]) {
    const programs = dw * split;
    const final = lastWave(programs, slots);
    show[`chip_${name}`] = say(`chip_${name}`, {
      planned: split,
      programs: count(programs, words.program),
      waves: count(cdiv(programs, slots), words.wave),
      busy: Math.min(final, sms),
      sms: units(sms),
    });
    Object.assign(draw, chip(name, final, sms, resident));
  }

  const first = say(dw < sms ? "starved" : dw < slots ? "partial" : "tail", {
    tiles: count(dw, words.tile),
    sms: units(sms),
    idle: units(Math.max(0, sms - dw)),
    blocks: count(blocks, words.block),
    slots,
    waves: show.waves,
    share: show.share,
  });
  const second = say(splitT > 1 ? "split" : most === 1 ? "short" : "whole", {
    planned: splitT,
    programs: count(dw * splitT, words.program),
    gain: `${(1 / over[splitT - 1]).toFixed(2)}×`,
  });
  show.sentence = `${first} ${second}`;

  draw.curve = { d: line(over) };
  draw.curve_planned = { cx: x(splitT).toFixed(1), cy: y(over[splitT - 1]).toFixed(1) };
  let [found, note] = nearest(gpu, shape);
  if (!gpu.recording) note = "unrecorded";
  else if (!gpu.splits.length) note = "unswept";
  else if (state.tile !== "planned" || bytes !== 2) note = "other";
  when.measured = note === "exact" || note === "near";
  show.measured = say(note, { recording: gpu.recording, shape: found ? found.shape.join(" × ") : "" });
  const curves = {};
  for (const way of ["plain", "atomic", "workspace"]) {
    const points = found && when.measured ? found[way] : [];
    curves[way] = new Map(points.map(([split, ms]) => [split, ms / found.plain[0][1]]));
    draw[`points_${way}`] = { d: marks(way, curves[way]) };
  }
  for (const split of [...new Set([...data.factors, splitT])].sort((a, b) => a - b)) {
    const cells = [`${split}`, split <= most ? over[split - 1].toFixed(2) : none];
    for (const way of ["atomic", "workspace"]) {
      let value = curves[way].get(split);
      if (split === 1) value ??= curves.plain.get(1);
      cells.push(value === undefined ? words.not_measured : value.toFixed(2));
    }
    rows.push(cells);
  }
  return { show, draw, rows, when };
}

function tileOf(data, state, device) {
  const offered = data.tiles[state.bytes];
  if (state.tile === "planned" && device) return chooseTile("dw", state.bytes, device);
  return offered.find(({ id }) => id === state.tile) ?? offered[0];
}

// dW's tile turned to another op's output: its two edges, in the same order.
function turned(tile, op) {
  const { block_k: rows, block_n: columns, block_t: deep } = tile;
  const [block_t, block_k, block_n] = {
    forward: [rows, deep, columns], dx: [rows, columns, deep], dw: [deep, rows, columns],
  }[op];
  return { ...tile, block_t, block_k, block_n };
}

const lastWave = (programs, slots) => programs % slots || Math.min(programs, slots);
const along = (number) => Math.max(1, Math.min(100, 5 * Math.log2(number)));

function mark(places) {
  const at = along(places).toFixed(1);
  return { x1: at, x2: at };
}

function chip(name, running, sms, resident) {
  const wide = (8 / resident).toFixed(2);
  const paths = { busy: "", idle: "" };
  for (let slot = 0; slot < resident; slot += 1) {
    for (let sm = 0; sm < sms; sm += 1) {
      const left = ((sm % COLUMNS) * 10 + 1 + (slot * 8) / resident).toFixed(2);
      const top = Math.floor(sm / COLUMNS) * 10 + 1;
      paths[slot * sms + sm < running ? "busy" : "idle"] += `M${left} ${top}h${wide}v8h-${wide}z`;
    }
  }
  return {
    [`chip_${name}`]: { viewBox: `0 0 ${COLUMNS * 10} ${Math.ceil(sms / COLUMNS) * 10}` },
    [`chip_${name}_busy`]: { d: paths.busy },
    [`chip_${name}_idle`]: { d: paths.idle },
  };
}

const x = (splitT) => LEFT + 10 + ((RIGHT - LEFT - 20) * Math.log2(splitT)) / 6;
const y = (over) => BOTTOM - ((BOTTOM - TOP) * over) / HIGHEST;

function line(over) {
  let path = "";
  for (const [index, value] of over.entries()) {
    if (value > HIGHEST) break;
    path += `${path ? "L" : "M"}${x(index + 1).toFixed(1)} ${y(value).toFixed(1)}`;
  }
  return path;
}

function marks(way, times) {
  const shape = way === "plain" ? "m-4 -4h8v8h-8z" : "m0 -5l5 5l-5 5l-5 -5z";
  let path = "";
  for (const [split, value] of times) {
    if (value <= HIGHEST) path += `M${x(split).toFixed(1)} ${y(value).toFixed(1)}${shape}`;
  }
  return path;
}

function nearest(gpu, shape) {
  let [best, least] = [null, Infinity];
  for (const swept of gpu.splits) {
    const apart = shape.reduce((sum, extent, axis) => sum + Math.abs(Math.log2(extent / swept.shape[axis])), 0);
    if (apart < least) [best, least] = [swept, apart];
  }
  return [best, least === 0 ? "exact" : least <= NEAR_OCTAVES ? "near" : "far"];
}
