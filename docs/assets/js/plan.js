// The arithmetic of kernels/plan.py, function by function; tests hold the two to the same results.
// Sizes are whole numbers below 2⁵³, so division and rounding down are exact where Python's // is.

const REGISTER_UNIT = 256;
const WARP_UNIT = 4;
const SHARED_MEMORY_UNIT_BYTES = 128;
const MIN_BLOCKS_PER_SPLIT = 4;
const PROGRAM_OVERHEAD_BLOCKS = 12;
const LONE_PROGRAM_TIME = 0.65;
const MAX_SPLIT_T = 64;

const OUTPUT_AXES = { forward: [0, 2], dx: [0, 1], dw: [1, 2] };
const CONTRACTED_AXIS = { forward: 1, dx: 2, dw: 0 };

const floorDiv = (a, b) => (a - (a % b)) / b;
export const cdiv = (a, b) => floorDiv(a, b) + (a % b ? 1 : 0);

const blocksOf = (tile) => [tile.block_t, tile.block_k, tile.block_n];

export function outputTiles(op, shape, tile) {
  const blocks = blocksOf(tile);
  const [rows, columns] = OUTPUT_AXES[op];
  return cdiv(shape[rows], blocks[rows]) * cdiv(shape[columns], blocks[columns]);
}

export function contractedBlocks(op, shape, tile) {
  const axis = CONTRACTED_AXIS[op];
  return cdiv(shape[axis], blocksOf(tile)[axis]);
}

export function residentPrograms(registersPerThread, sharedMemory, numWarps, device) {
  const byWarps = floorDiv(device.max_warps_per_sm, numWarps);
  let byRegisters = device.max_programs_per_sm;
  if (registersPerThread) {
    const perWarp = cdiv(registersPerThread * device.warp_size, REGISTER_UNIT) * REGISTER_UNIT;
    const warps = floorDiv(floorDiv(device.registers_per_program, perWarp), WARP_UNIT) * WARP_UNIT;
    byRegisters = floorDiv(warps, numWarps) * floorDiv(device.registers_per_sm, device.registers_per_program);
  }
  if (sharedMemory > device.shared_memory_per_program_bytes) return 0;
  const needed = sharedMemory + device.reserved_shared_memory_per_program_bytes;
  const shared = cdiv(needed, SHARED_MEMORY_UNIT_BYTES) * SHARED_MEMORY_UNIT_BYTES;
  const byShared = shared ? floorDiv(device.shared_memory_per_sm_bytes, shared) : device.max_programs_per_sm;
  return Math.min(byWarps, device.max_programs_per_sm, byRegisters, byShared);
}

export function sharedMemoryBytes(op, tile, itemsize) {
  const blocks = blocksOf(tile);
  const [rows, columns] = OUTPUT_AXES[op].map((axis) => blocks[axis]);
  const stage = (rows + columns) * blocks[CONTRACTED_AXIS[op]] * itemsize;
  return Math.max(tile.num_stages * stage, 4 * rows * columns);
}

export function chooseTile(op, itemsize, device) {
  const [largest, deep] = itemsize === 2 ? [128, 64] : [64, 32];
  const frugal = itemsize === 4 || device.capability.startsWith("9.");
  const limit = device.shared_memory_per_program_bytes;
  let need;
  for (const edge of [largest, largest / 2]) {
    const blocks = [edge, edge, edge];
    blocks[CONTRACTED_AXIS[op]] = deep;
    const [block_t, block_k, block_n] = blocks;
    for (const num_stages of [3, 2, 1]) {
      const tile = { block_t, block_k, block_n, num_warps: frugal ? 4 : 8, num_stages };
      need = sharedMemoryBytes(op, tile, itemsize);
      if (need <= limit) return tile;
    }
  }
  throw new RangeError(
    `the smallest ${op} tile needs ${need} bytes of shared memory a program, the device offers ${limit}`);
}

export function expectedResident(op, tile, itemsize, device) {
  const blocks = blocksOf(tile);
  const [rows, columns] = OUTPUT_AXES[op].map((axis) => blocks[axis]);
  const threads = tile.num_warps * device.warp_size;
  const registers = Math.min(255, floorDiv(rows * columns, threads) + 64);
  const shared = sharedMemoryBytes(op, tile, itemsize);
  return Math.max(1, residentPrograms(registers, shared, tile.num_warps, device));
}

export function splitTime(splitT, tiles, blocks, smCount, resident) {
  const slots = smCount * resident;
  const full = floorDiv(tiles * splitT, slots);
  const rest = (tiles * splitT) % slots;
  const alone = resident > 1 && rest <= smCount;
  const last = !rest ? 0 : alone ? LONE_PROGRAM_TIME : 1;
  return (full + last) * (cdiv(blocks, splitT) + PROGRAM_OVERHEAD_BLOCKS);
}

export const largestSplit = (blocks) =>
  Math.max(1, Math.min(MAX_SPLIT_T, floorDiv(blocks, MIN_BLOCKS_PER_SPLIT)));

export const fillingSplit = (tiles, places) => Math.max(1, cdiv(places, Math.max(1, tiles)));

export function splitFactor(tiles, blocks, smCount, resident) {
  let best = 1;
  let shortest = Infinity;
  for (let splitT = 1; splitT <= largestSplit(blocks); splitT += 1) {
    const time = splitTime(splitT, tiles, blocks, smCount, resident);
    if (time < shortest) [best, shortest] = [splitT, time];
  }
  return best;
}
