import { fairQueue, noOwner, type RequestOwner } from '../concurrency/fair-queue.ts';
import { ApiError } from '../domain/errors.ts';
import { PictureError, type PictureType } from '../domain/files.ts';

/** A camera has up to 50 million pixels. Decoding takes four bytes for each. */
const maxPixels = 50_000_000;
/** Larger pictures are reduced to fit into a square of this many pixels. */
const maxSide = 2_000;
/** A logo is printed 90 points wide at most: this gives 500 dots per inch. */
const maxPrintedSide = 640;
const timeoutSeconds = 10;

type Sharp = typeof import('sharp').default;
let loaded: Promise<Sharp> | undefined;

/**
 * Loads sharp with the first picture: it takes 15 MB.
 * @throws ApiError `unavailable` where its binary package for the platform is missing
 */
function loadSharp(): Promise<Sharp> {
  loaded ??= import('sharp').then(
    ({ default: sharp }) => {
      // One thread for each picture, and no memory kept after it.
      sharp.concurrency(1);
      sharp.cache(false);
      // libvips reads dozens of formats. Nobody uploads the others.
      sharp.block({ operation: ['VipsForeignLoad'] });
      sharp.unblock({
        operation: ['VipsForeignLoadJpegBuffer', 'VipsForeignLoadPngBuffer', 'VipsForeignLoadWebpBuffer'],
      });
      return sharp;
    },
    (cause: unknown) => {
      loaded = undefined;
      throw new ApiError('unavailable', 'This server cannot read pictures. Its log says which package is missing.', {
        retryAfter: 3600,
        cause,
      });
    },
  );
  return loaded;
}

/**
 * libvips uses the threads of libuv, which passwords and files need too. So a process reads one picture at a time, and
 * needs at most 4 × `maxPixels` bytes for it.
 */
const queue = fairQueue({
  name: 'pictures',
  maxRunning: { total: 1 },
  maxInProgress: { total: 40, school: 20, user: 5 },
  refusal: () =>
    new ApiError('unavailable', 'Too many pictures are being read. Try again in a moment.', { retryAfter: 5 }),
});

/** Decodes a picture, turns it upright, reduces it and encodes it again. @throws PictureError */
async function convert(content: Uint8Array, type: PictureType, side: number): Promise<Buffer> {
  const sharp = await loadSharp();
  try {
    const picture = sharp(content, { failOn: 'error', limitInputPixels: false, sequentialRead: true });
    const { width, height } = await picture.metadata();
    if (width * height > maxPixels)
      throw new PictureError(
        `has ${String(width)} × ${String(height)} pixels. At most ${String(maxPixels / 1e6)} million are allowed.`,
      );
    // The metadata (EXIF with the place, comments) is left out by default.
    const upright = picture
      .timeout({ seconds: timeoutSeconds })
      .autoOrient()
      .resize(side, side, { fit: 'inside', withoutEnlargement: true });
    const encoded =
      type === 'image/jpeg'
        ? upright.jpeg({ quality: 90 })
        : type === 'image/png'
          ? upright.png()
          : upright.webp({ quality: 90 });
    return await encoded.toBuffer();
  } catch (error) {
    if (error instanceof PictureError) throw error;
    throw new PictureError(/timeout/i.test(String(error)) ? 'takes too long to read.' : 'is damaged.', {
      cause: error,
    });
  }
}

/**
 * A copy of an uploaded picture of the same type: decoded and encoded again, upright, without metadata, and with at most
 * 2,000 pixels on each side.
 * @throws PictureError; ApiError `unavailable` when too many pictures wait, or the server has no library
 */
export const cleanPicture = (content: Buffer, type: PictureType, owner: RequestOwner = noOwner): Promise<Buffer> =>
  queue.run(owner, () => convert(content, type, maxSide));

/**
 * A stored picture as pdfkit can draw it: pdfkit trusts every length in a file, and an imported school may have files
 * that were never checked. Runs in the threads of print.ts.
 * @param picture  in base64
 * @returns the same; null if the picture cannot be drawn
 */
export async function drawablePicture(picture: string): Promise<string | null> {
  try {
    return (await convert(Buffer.from(picture, 'base64'), 'image/png', maxPrintedSide)).toString('base64');
  } catch {
    return null;
  }
}
