import { promisify } from 'node:util';
import { crc32, inflate, inflateSync } from 'node:zlib';

// pdfkit (png-js) believes every length that a picture names: one of 70 bytes could end the process. What it is given is
// looked through here first, down to the filter of each row.

/** What a picture is not, or has too much of; its message goes on after «The picture ». */
export class PictureError extends Error {}

const most = { pixels: 4_000_000, bytes: 20_000_000 };
const signature = Buffer.from('89504e470d0a1a0a', 'hex');
const isPng = (picture: Buffer) => picture.subarray(0, 4).equals(signature.subarray(0, 4));

/** How many numbers a pixel has, and in how many bits each may be, by the colour type of a PNG. */
const colourTypes: Partial<Record<number, { samples: number; bits: number[] }>> = {
  0: { samples: 1, bits: [1, 2, 4, 8, 16] },
  2: { samples: 3, bits: [8, 16] },
  3: { samples: 1, bits: [1, 2, 4, 8] },
  4: { samples: 2, bits: [8, 16] },
  6: { samples: 4, bits: [8, 16] },
};
const palette = 3;

/** The passes of an interlaced PNG: where each begins, and its steps. */
const interlaced = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;
/** Narrower ones have passes without a pixel, which png-js does not know. */
const leastInterlacedWidth = 5;

interface Png {
  header: Buffer;
  palette: Buffer;
  transparency: Buffer | undefined;
  /** As they are in the file, still packed. */
  pixels: Buffer;
  /** Rows of so many bytes each, the filter of the row not counted. */
  rows: { count: number; bytes: number }[];
}

/** The chunks of a PNG that make its picture. @throws PictureError where one is not what it says */
function readPng(file: Buffer): Png {
  const whole = (is: boolean): void => {
    if (!is) throw new PictureError('is damaged.');
  };
  whole(file.subarray(0, 8).equals(signature));
  const found = new Map<string, Buffer[]>();
  let at = 8;
  while (!found.has('IEND')) {
    whole(at + 12 <= file.length);
    const length = file.readUInt32BE(at);
    const type = file.toString('latin1', at + 4, at + 8);
    whole(length <= file.length - at - 12 && (found.size > 0 || type === 'IHDR'));
    const content = file.subarray(at + 8, at + 8 + length);
    if (['IHDR', 'PLTE', 'tRNS', 'IDAT', 'IEND'].includes(type)) found.set(type, [...(found.get(type) ?? []), content]);
    at += 12 + length;
  }
  const header = found.get('IHDR')?.[0] ?? Buffer.alloc(0);
  whole(header.length === 13 && found.get('IHDR')?.length === 1 && found.has('IDAT'));
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const [bits = 0, colours = 0, compression, filter, interlacing] = header.subarray(8);
  const kind = colourTypes[colours];
  if (!kind) throw new PictureError('is damaged.');
  whole(
    width > 0 &&
      height > 0 &&
      kind.bits.includes(bits) &&
      compression === 0 &&
      filter === 0 &&
      (interlacing === 0 || interlacing === 1),
  );
  if (width * height > most.pixels)
    throw new PictureError(`has ${String(width)} × ${String(height)} pixels; 4 million at most can be printed.`);
  if (interlacing === 1 && (bits < 8 || width < leastInterlacedWidth))
    throw new PictureError('is interlaced, which can not be printed. Save it without.');

  const passes = interlacing === 1 ? interlaced : [[0, 0, 1, 1] as const];
  const rows = passes.map(([x, y, dx, dy]) => ({
    count: Math.ceil((height - y) / dy),
    bytes: Math.ceil((Math.ceil((width - x) / dx) * bits * kind.samples) / 8),
  }));
  if (rows.reduce((sum, { count, bytes }) => sum + count * (bytes + 1), 0) > most.bytes)
    throw new PictureError('takes more than 20 MB unpacked. Save it with 8 bits.');

  const colourTable = colours === palette ? found.get('PLTE') : [];
  whole(colourTable !== undefined && colourTable.length <= 1);
  const table = colourTable?.[0] ?? Buffer.alloc(0);
  whole(table.length % 3 === 0 && table.length <= 768 && (colours !== palette || table.length > 0));
  // Of other kinds pdfkit takes the wrong colours for transparent.
  const transparency = colours === palette && bits === 8 ? found.get('tRNS')?.[0] : undefined;
  whole(!transparency || transparency.length <= 256);
  return { header, palette: table, transparency, pixels: Buffer.concat(found.get('IDAT') ?? []), rows };
}

/** @throws PictureError when rows are missing, or have a filter that does not exist */
function checkRows({ rows }: Png, unpacked: Buffer): void {
  let at = 0;
  for (const { count, bytes } of rows) {
    for (let row = 0; row < count; row++, at += bytes + 1) {
      if (at + bytes >= unpacked.length || (unpacked[at] ?? 5) > 4) throw new PictureError('is damaged.');
    }
  }
}

/** Walks a JPEG to its frame, which says how large it is. @throws PictureError for what a PDF can not hold */
function checkJpeg(file: Buffer): void {
  let frame: Buffer | undefined;
  for (let at = 2, marker = 0; marker !== 0xda;) {
    if (at + 4 > file.length || file[at] !== 0xff) throw new PictureError('is damaged.');
    marker = file[at + 1] ?? 0;
    if (marker === 0xff) {
      at++; // Any number of these may stand before a marker.
      continue;
    }
    const length = file.readUInt16BE(at + 2);
    if (length < 2 || at + 2 + length > file.length) throw new PictureError('is damaged.');
    // Baseline, extended, progressive; the others no reader of PDF knows.
    if (marker >= 0xc3 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      throw new PictureError('is a JPEG of a kind that can not be printed.');
    if (marker >= 0xc0 && marker <= 0xc2) frame = file.subarray(at + 4, at + 2 + length);
    at += 2 + length;
  }
  if (!frame || frame.length < 9) throw new PictureError('is damaged.');
  const isDrawable =
    frame[0] === 8 && frame.readUInt16BE(1) > 0 && frame.readUInt16BE(3) > 0 && [1, 3, 4].includes(frame[5] ?? 0);
  if (!isDrawable) throw new PictureError('is a JPEG of a kind that can not be printed.');
}

function chunk(type: string, content: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), content]);
  const made = Buffer.alloc(named.length + 8);
  made.writeUInt32BE(content.length);
  named.copy(made, 4);
  made.writeUInt32BE(crc32(named), named.length + 4);
  return made;
}

const limit = { maxOutputLength: most.bytes };

/** A PNG or JPEG as pdfkit may have it: a PNG of nothing but what makes its picture. @throws PictureError, or what zlib throws */
export function drawable(picture: Buffer): Buffer {
  if (!isPng(picture)) {
    checkJpeg(picture);
    return picture;
  }
  const png = readPng(picture);
  checkRows(png, inflateSync(png.pixels, limit));
  return Buffer.concat([
    signature,
    chunk('IHDR', png.header),
    ...(png.palette.length > 0 ? [chunk('PLTE', png.palette)] : []),
    ...(png.transparency ? [chunk('tRNS', png.transparency)] : []),
    chunk('IDAT', png.pixels),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

const unpack = promisify<Buffer, { maxOutputLength: number }, Buffer>(inflate);

/** Whether a PNG or JPEG can be drawn; else what is wrong with it. Unpacks beside the event loop. */
export async function pictureFault(picture: Buffer): Promise<string | undefined> {
  try {
    if (!isPng(picture)) checkJpeg(picture);
    else {
      const png = readPng(picture);
      checkRows(png, await unpack(png.pixels, limit));
    }
    return undefined;
  } catch (error) {
    return error instanceof PictureError ? error.message : 'is damaged.';
  }
}
