import { crc32, deflateSync } from 'node:zlib';

/** The smallest PNG: one pixel. */
export const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');

/** A small JPEG: one pixel. */
export const jpeg = Buffer.from(
  '/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA=',
  'base64',
);

const u32 = (n: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n >>> 0);
  return bytes;
};
/** A chunk of a PNG; its length may be a lie. */
const chunk = (type: string, data: Buffer, length = data.length) => {
  const named = Buffer.concat([Buffer.from(type), data]);
  return Buffer.concat([u32(length), named, u32(crc32(named))]);
};
const header = (width: number, height: number, bits: number, colours: number) =>
  chunk('IHDR', Buffer.concat([u32(width), u32(height), Buffer.from([bits, colours, 0, 0, 0])]));
const made = (...chunks: Buffer[]) => Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...chunks]);
const row = (filter: number) => deflateSync(Buffer.from([filter, 1, 2, 3, 4]));
const end = chunk('IEND', Buffer.alloc(0));

/** A PNG with a palette of two colours, one of them transparent. */
export const palettePng = made(
  header(1, 1, 8, 3),
  chunk('tEXt', Buffer.from('Comment\0none')),
  chunk('PLTE', Buffer.from([1, 2, 3, 4, 5, 6])),
  chunk('tRNS', Buffer.from([0])),
  chunk('IDAT', deflateSync(Buffer.from([0, 1]))),
  end,
);

/** Pictures that hurt who believes what they say of themselves, by what they say. */
export const hostilePictures: Record<string, Buffer> = {
  'a filter that does not exist': made(header(1, 1, 8, 6), chunk('IDAT', row(9)), end),
  'a length below zero': made(header(1, 1, 8, 6), chunk('IDAT', row(0)), chunk('aaaa', Buffer.alloc(0), 0xfffffff4)),
  'a palette of 2 GB': made(header(1, 1, 8, 3), chunk('IDAT', row(0)), chunk('PLTE', Buffer.alloc(3), 0x7fffffff)),
  'a picture of 2 GB': made(header(1, 1, 8, 6), chunk('IDAT', row(0), 0x7fffffff)),
  'a palette of 1,000 colours': made(header(1, 1, 8, 3), chunk('PLTE', Buffer.alloc(3000)), chunk('IDAT', row(0)), end),
  'no end': made(header(1, 1, 8, 6), chunk('IDAT', row(0))),
  'rows that are missing': made(header(9, 9, 8, 6), chunk('IDAT', row(0)), end),
  '3.6 thousand million pixels': made(header(60_000, 60_000, 8, 6), chunk('IDAT', row(0)), end),
  'rows that unpack into 30 MB': made(header(1, 1, 8, 6), chunk('IDAT', deflateSync(Buffer.alloc(30_000_000))), end),
  'what is no zlib': made(header(1, 1, 8, 6), chunk('IDAT', Buffer.from('none')), end),
  'a JPEG without a frame': Buffer.from('ffd8ffe000104a46494600010100000100010000ffd9', 'hex'),
  'a JPEG of two colours': Buffer.concat([Buffer.from('ffd8ffc0000e080001000102011100021100ffda0008', 'hex'), Buffer.alloc(20)]),
};

/** A multipart form with one file. */
export function fileForm(content: Buffer, name: string, type: string, field = 'picture'): FormData {
  const form = new FormData();
  form.append(field, new Blob([new Uint8Array(content)], { type }), name);
  return form;
}
