/** A flow network. Nodes are numbered in the order in which they are added: the source is 0, the sink 1. */
interface Network {
  node: () => number;
  /** Adds an edge. @returns its number */
  pipe: (from: number, to: number, capacity: number) => number;
  /** The maximum additional flow from source to sink (Dinic's algorithm). */
  maxFlow: () => number;
  /** The flow through an edge, after `maxFlow`. */
  flowOf: (pipe: number) => number;
  /** Whether a node is on the source's side of the minimum cut, after `maxFlow`. */
  isBeforeCut: (node: number) => boolean;
}

export const source = 0;
export const sink = 1;

export function network(): Network {
  const heads: number[] = [-1, -1];
  const to: number[] = [];
  const left: number[] = [];
  const next: number[] = [];
  let level = new Int32Array();

  const half = (from: number, target: number, capacity: number) => {
    to.push(target);
    left.push(capacity);
    next.push(heads[from]!);
    heads[from] = to.length - 1;
  };
  const levels = () => {
    level = new Int32Array(heads.length).fill(-1);
    level[source] = 0;
    const queue = [source];
    for (const node of queue) {
      for (let edge = heads[node]!; edge >= 0; edge = next[edge]!) {
        if (left[edge] === 0 || level[to[edge]!]! >= 0) continue;
        level[to[edge]!] = level[node]! + 1;
        queue.push(to[edge]!);
      }
    }
    return level[sink]! >= 0;
  };
  // The recursion depth is limited by the number of layers, which is small here.
  const push = (node: number, most: number, at: number[]): number => {
    if (node === sink) return most;
    for (; at[node]! >= 0; at[node] = next[at[node]!]!) {
      const edge = at[node]!;
      if (left[edge] === 0 || level[to[edge]!] !== level[node]! + 1) continue;
      const pushed = push(to[edge]!, Math.min(most, left[edge]!), at);
      if (pushed === 0) continue;
      left[edge]! -= pushed;
      left[edge ^ 1]! += pushed;
      return pushed;
    }
    return 0;
  };
  return {
    node: () => heads.push(-1) - 1,
    pipe: (from, target, capacity) => {
      half(from, target, capacity);
      half(target, from, 0);
      return to.length - 2;
    },
    maxFlow: () => {
      let flow = 0;
      while (levels()) {
        const at = [...heads];
        for (let pushed = push(source, Infinity, at); pushed > 0; pushed = push(source, Infinity, at)) flow += pushed;
      }
      return flow;
    },
    flowOf: (pipe) => left[pipe + 1]!,
    isBeforeCut: (node) => level[node]! >= 0,
  };
}
