import { crc32, deflateRawSync } from 'node:zlib';

/** A zip archive of these entries, as every program makes it: local headers, compressed content, the directory, its end. */
export function zip(entries: Record<string, string | Buffer>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [path, given] of Object.entries(entries)) {
    const name = Buffer.from(path);
    const content = Buffer.from(given);
    // OpenDocument wants its type uncompressed.
    const isStored = path === 'mimetype';
    const data = isStored ? content : deflateRawSync(content);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(isStored ? 0 : 8, 4);
    fields.writeUInt32LE(crc32(content), 10);
    fields.writeUInt32LE(data.length, 14);
    fields.writeUInt32LE(content.length, 18);
    fields.writeUInt16LE(name.length, 22);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(offset, 10);
    parts.push(Buffer.from('PK\x03\x04'), fields, name, data);
    directory.push(Buffer.from('PK\x01\x02\x14\0'), fields, place, name);
    offset += 30 + name.length + data.length;
  }
  const listing = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(Object.keys(entries).length, 4);
  end.writeUInt16LE(Object.keys(entries).length, 6);
  end.writeUInt32LE(listing.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, listing, Buffer.from('PK\x05\x06'), end]);
}

/** The least that an Office program writes: which parts there are, and the main one. */
export const officeFile = (mainType: string, part: string) =>
  zip({
    '[Content_Types].xml': `<?xml version="1.0"?><Types><Override PartName="/${part}" ContentType="${mainType}.main+xml"/></Types>`,
    [part]: '<document/>',
  });

/** The least that an OpenDocument program writes. */
export const openDocumentFile = (type: string) => zip({ mimetype: type, 'content.xml': '<office:document-content/>' });

/** What begins like a PDF and goes on with whatever is given. */
export const pdfOf = (rest: string | Buffer) => Buffer.concat([Buffer.from('%PDF-1.7\n'), Buffer.from(rest)]);

/** What begins like a compound file: doc, xls and ppt of old, and other things. */
export const compoundFile = Buffer.concat([Buffer.from('d0cf11e0a1b11ae1', 'hex'), Buffer.alloc(1528)]);
