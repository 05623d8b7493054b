/** The part of a model that is about rooms. */
interface Rooms {
  days: number;
  length: number;
  /** By kind of lesson: its class, and the rooms in which it can take place. */
  classOf: Int32Array;
  roomsOf: number[][];
  /** By class and day, by room and day: masks of periods. */
  classClosed: Int32Array;
  roomBusy: Int32Array;
  /** By room. */
  isShared: boolean[];
}

/** At most `capacity` lessons of some kinds can take place in a slot, because they share rooms. */
export interface RoomLimit {
  /** The rooms, which are not shared. */
  rooms: number[];
  /** By slot of the week. */
  capacity: Int32Array;
}

/** More sets of rooms than this are not combined with each other: see `roomLimits`. */
const maxUnions = 64;

const keyOf = (rooms: readonly number[]) => rooms.join();
const union = (a: readonly number[], b: readonly number[]) => [...new Set([...a, ...b])].sort((x, y) => x - y);

/**
 * The limits of all sets of rooms, and by kind of lesson the limits that count it. By the theorem of Hall, the lessons
 * of a slot have a room each if for every union of their sets of rooms, no more lessons need it than it has rooms. So
 * the unions of sets that overlap have a limit each; with more than 64 of them, only the sets and the union of all do,
 * and `roomsOfSlots` leaves lessons out that get no room.
 */
export function roomLimits({ days, length, classOf, classClosed, roomsOf, isShared, roomBusy }: Rooms): {
  roomLimits: RoomLimit[];
  limitsOf: number[][];
} {
  // A lesson that can take place in a shared room always has one.
  const needs = roomsOf.map((rooms) => (rooms.some((room) => isShared[room]) ? [] : rooms));
  const components: number[][][] = [];
  for (const set of new Map(needs.filter((rooms) => rooms.length > 0).map((rooms) => [keyOf(rooms), rooms])).values()) {
    const touching = components.filter((sets) => sets.some((other) => other.some((room) => set.includes(room))));
    for (const component of touching) components.splice(components.indexOf(component), 1);
    components.push([...touching.flat(), set]);
  }
  const limits: RoomLimit[] = [];
  const limitsOf = needs.map((): number[] => []);
  for (const sets of components) {
    const all = sets.reduce(union, []);
    const kinds = [...needs.keys()].filter((kind) => needs[kind]!.some((room) => all.includes(room)));
    const classes = [...new Set(kinds.map((kind) => classOf[kind]!))];
    // A lesson of the only class of a home room keeps it busy when the class is not free anyway.
    const isBusy = all.some((room) =>
      Array.from({ length: days }, (_, day) => day).some((day) =>
        classes.some((index) => (roomBusy[room * days + day]! & ~classClosed[index * days + day]!) !== 0),
      ),
    );
    // The lessons of a class are never at the same time.
    if (!isBusy && classes.length <= all.length && sets.length === 1) continue;
    for (const rooms of unionsOf(sets)) {
      const capacity = new Int32Array(days * length);
      for (let slot = 0; slot < capacity.length; slot++) {
        const day = Math.floor(slot / length);
        const bit = 1 << (slot % length);
        capacity[slot] = rooms.filter((room) => (roomBusy[room * days + day]! & bit) === 0).length;
      }
      for (const kind of kinds) {
        if (needs[kind]!.every((room) => rooms.includes(room))) limitsOf[kind]!.push(limits.length);
      }
      limits.push({ rooms, capacity });
    }
  }
  return { roomLimits: limits, limitsOf };
}

/** The sets and their unions, or only the sets and the union of all if there are too many. */
function unionsOf(sets: number[][]): number[][] {
  const found = new Map<string, number[]>();
  for (const set of sets) {
    for (const other of [...found.values(), []]) {
      const both = union(other, set);
      found.set(keyOf(both), both);
    }
    if (found.size > maxUnions) {
      const all = sets.reduce(union, []);
      return [...new Map([...sets, all].map((rooms) => [keyOf(rooms), rooms])).values()];
    }
  }
  return [...found.values()];
}

interface RoomsOfSlots {
  /** Gives a lesson a room, moving others to another of their rooms if needed. @returns false if none is free */
  take: (kind: number, slot: number) => boolean;
  /** Whether a lesson would get a room. */
  isFree: (kind: number, slot: number) => boolean;
  /** The room of a lesson of a class, or -1. */
  roomAt: (classIndex: number, slot: number) => number;
}

/** Assigns a room to each lesson of a slot (a matching by augmenting paths). */
export function roomsOfSlots({
  days,
  length,
  classIds,
  classOf,
  roomsOf,
  isShared,
  roomBusy,
}: Rooms & { classIds: readonly unknown[] }): RoomsOfSlots {
  const usable = days * length;
  /** By room and slot: the kind of lesson there, or -1. */
  const kindAt = new Int32Array(isShared.length * usable).fill(-1);
  /** By class and slot: its room, or -1. */
  const given = new Int32Array(classIds.length * usable).fill(-1);
  const isBusy = (room: number, slot: number) =>
    (roomBusy[room * days + Math.floor(slot / length)]! & (1 << (slot % length))) !== 0;
  const give = (kind: number, slot: number, room: number) => {
    given[classOf[kind]! * usable + slot] = room;
    if (!isShared[room]) kindAt[room * usable + slot] = kind;
  };
  const seek = (kind: number, slot: number, seen: Set<number>, moves: boolean): boolean => {
    for (const room of roomsOf[kind]!) {
      if (isShared[room] || seen.has(room) || isBusy(room, slot)) continue;
      seen.add(room);
      const other = kindAt[room * usable + slot]!;
      if (other >= 0 && !seek(other, slot, seen, moves)) continue;
      if (moves) give(kind, slot, room);
      return true;
    }
    const shared = roomsOf[kind]!.find((room) => isShared[room]);
    if (shared !== undefined && moves) give(kind, slot, shared);
    return shared !== undefined;
  };
  return {
    take: (kind, slot) => roomsOf[kind]!.length === 0 || seek(kind, slot, new Set(), true),
    isFree: (kind, slot) => roomsOf[kind]!.length === 0 || seek(kind, slot, new Set(), false),
    roomAt: (classIndex, slot) => given[classIndex * usable + slot] ?? -1,
  };
}
