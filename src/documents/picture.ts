import { promisify } from 'node:util';
import { crc32, inflate, inflateSync } from 'node:zlib';

// pdfkit (png-js) trusts every length in a picture: a file of 70 bytes could crash the process. This file validates
// pictures first, down to the filter byte of each row.

/** An unusable picture. The message continues a sentence that starts with "The picture". */
export class PictureError extends Error {}

const maximum = { pixels: 4_000_000, unpackedBytes: 20_000_000 };
const signature = Buffer.from('89504e470d0a1a0a', 'hex');
const isPng = (picture: Buffer) => picture.subarray(0, 4).equals(signature.subarray(0, 4));

/** Samples per pixel and allowed bits per sample, by color type of a PNG. */
const colorTypes: Partial<Record<number, { samples: number; bits: number[] }>> = {
  0: { samples: 1, bits: [1, 2, 4, 8, 16] },
  2: { samples: 3, bits: [8, 16] },
  3: { samples: 1, bits: [1, 2, 4, 8] },
  4: { samples: 2, bits: [8, 16] },
  6: { samples: 4, bits: [8, 16] },
};
const paletteType = 3;

/** The passes of an interlaced PNG: x and y of the first pixel, x and y step. */
const interlacePasses = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;
/** Narrower pictures have passes without pixels, which png-js does not support. */
const minInterlacedWidth = 5;

interface Png {
  header: Buffer;
  palette: Buffer;
  transparency: Buffer | undefined;
  /** Compressed, as in the file. */
  pixels: Buffer;
  /** Number of rows and bytes per row, without the filter byte. */
  rows: { count: number; bytes: number }[];
}

/** The chunks of a PNG that are needed to draw it. @throws PictureError if one is invalid */
function readPng(file: Buffer): Png {
  const requireValid = (isValid: boolean): void => {
    if (!isValid) throw new PictureError('is damaged.');
  };
  requireValid(file.subarray(0, 8).equals(signature));
  const found = new Map<string, Buffer[]>();
  let at = 8;
  while (!found.has('IEND')) {
    requireValid(at + 12 <= file.length);
    const length = file.readUInt32BE(at);
    const type = file.toString('latin1', at + 4, at + 8);
    requireValid(length <= file.length - at - 12 && (found.size > 0 || type === 'IHDR'));
    const content = file.subarray(at + 8, at + 8 + length);
    if (['IHDR', 'PLTE', 'tRNS', 'IDAT', 'IEND'].includes(type)) found.set(type, [...(found.get(type) ?? []), content]);
    at += 12 + length;
  }
  const header = found.get('IHDR')?.[0] ?? Buffer.alloc(0);
  requireValid(header.length === 13 && found.get('IHDR')?.length === 1 && found.has('IDAT'));
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const [bits = 0, colorType = 0, compression, filter, interlacing] = header.subarray(8);
  const kind = colorTypes[colorType];
  if (!kind) throw new PictureError('is damaged.');
  requireValid(
    width > 0 &&
      height > 0 &&
      kind.bits.includes(bits) &&
      compression === 0 &&
      filter === 0 &&
      (interlacing === 0 || interlacing === 1),
  );
  if (width * height > maximum.pixels)
    throw new PictureError(`has ${String(width)} × ${String(height)} pixels. At most 4 million can be printed.`);
  if (interlacing === 1 && (bits < 8 || width < minInterlacedWidth))
    throw new PictureError('is interlaced and cannot be printed. Save it without interlacing.');

  const passes = interlacing === 1 ? interlacePasses : [[0, 0, 1, 1] as const];
  const rows = passes.map(([x, y, dx, dy]) => ({
    count: Math.ceil((height - y) / dy),
    bytes: Math.ceil((Math.ceil((width - x) / dx) * bits * kind.samples) / 8),
  }));
  if (rows.reduce((sum, { count, bytes }) => sum + count * (bytes + 1), 0) > maximum.unpackedBytes)
    throw new PictureError('has more than 20 MB of pixel data. Save it with 8 bits per sample.');

  const colorTable = colorType === paletteType ? found.get('PLTE') : [];
  requireValid(colorTable !== undefined && colorTable.length <= 1);
  const table = colorTable?.[0] ?? Buffer.alloc(0);
  requireValid(table.length % 3 === 0 && table.length <= 768 && (colorType !== paletteType || table.length > 0));
  // With other color types and depths pdfkit makes the wrong colors transparent.
  const transparency = colorType === paletteType && bits === 8 ? found.get('tRNS')?.[0] : undefined;
  requireValid(!transparency || transparency.length <= 256);
  return { header, palette: table, transparency, pixels: Buffer.concat(found.get('IDAT') ?? []), rows };
}

/** @throws PictureError if rows are missing or have an unknown filter */
function checkRows({ rows }: Png, unpacked: Buffer): void {
  let at = 0;
  for (const { count, bytes } of rows) {
    for (let row = 0; row < count; row++, at += bytes + 1) {
      if (at + bytes >= unpacked.length || (unpacked[at] ?? 5) > 4) throw new PictureError('is damaged.');
    }
  }
}

/** Checks the frame header of a JPEG. @throws PictureError for a JPEG that a PDF cannot contain */
function checkJpeg(file: Buffer): void {
  let frame: Buffer | undefined;
  for (let at = 2, marker = 0; marker !== 0xda;) {
    if (at + 4 > file.length || file[at] !== 0xff) throw new PictureError('is damaged.');
    marker = file[at + 1] ?? 0;
    if (marker === 0xff) {
      at++; // A marker may be preceded by any number of fill bytes.
      continue;
    }
    const length = file.readUInt16BE(at + 2);
    if (length < 2 || at + 2 + length > file.length) throw new PictureError('is damaged.');
    // PDF readers support baseline, extended and progressive JPEGs only.
    if (marker >= 0xc3 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      throw new PictureError('is a JPEG of an unsupported kind and cannot be printed. Save it as a baseline JPEG.');
    if (marker >= 0xc0 && marker <= 0xc2) frame = file.subarray(at + 4, at + 2 + length);
    at += 2 + length;
  }
  if (!frame || frame.length < 9) throw new PictureError('is damaged.');
  const isDrawable =
    frame[0] === 8 && frame.readUInt16BE(1) > 0 && frame.readUInt16BE(3) > 0 && [1, 3, 4].includes(frame[5] ?? 0);
  if (!isDrawable)
    throw new PictureError('is a JPEG of an unsupported kind and cannot be printed. Save it as a baseline JPEG.');
}

function chunk(type: string, content: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), content]);
  const result = Buffer.alloc(body.length + 8);
  result.writeUInt32BE(content.length);
  body.copy(result, 4);
  result.writeUInt32BE(crc32(body), body.length + 4);
  return result;
}

const limit = { maxOutputLength: maximum.unpackedBytes };

/**
 * A copy of a PNG or JPEG that is safe for pdfkit. A PNG keeps only the chunks that are needed to draw it.
 * @throws PictureError, or an error of zlib
 */
export function sanitizePicture(picture: Buffer): Buffer {
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

const unpackAsync = promisify<Buffer, { maxOutputLength: number }, Buffer>(inflate);

/** The fault of a PNG or JPEG, in words; undefined if it can be drawn. Unpacks outside the event loop. */
export async function pictureFault(picture: Buffer): Promise<string | undefined> {
  try {
    if (!isPng(picture)) checkJpeg(picture);
    else {
      const png = readPng(picture);
      checkRows(png, await unpackAsync(png.pixels, limit));
    }
    return undefined;
  } catch (error) {
    return error instanceof PictureError ? error.message : 'is damaged.';
  }
}
