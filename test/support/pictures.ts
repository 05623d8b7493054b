/** The smallest PNG: one pixel. */
export const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');

/** What begins like a JPEG, with a body that is not text. */
export const jpeg = Buffer.concat([
  Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex'),
  Buffer.from(Array.from({ length: 300 }, (_, n) => (n * 37) % 256)),
  Buffer.from('ffd9', 'hex'),
]);

/** A multipart form with one file. */
export function fileForm(content: Buffer, name: string, type: string, field = 'picture'): FormData {
  const form = new FormData();
  form.append(field, new Blob([new Uint8Array(content)], { type }), name);
  return form;
}
