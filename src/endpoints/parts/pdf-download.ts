import { requestOwner } from '../../http/request-owner.ts';
import { print, type PrintJob } from '../../documents/print.ts';
import { download, type DownloadResponse } from '../../http/endpoint.ts';

const contentType = 'application/pdf';

/** The data of a kind of document. */
type DataOf<Kind extends PrintJob['kind']> = Extract<PrintJob, { kind: Kind }>['data'];

/** The part of an endpoint that answers the data of its operation as a PDF. */
export const pdfDownload = <Kind extends PrintJob['kind']>(
  operation: string,
  kind: Kind,
  fileName: (data: DataOf<Kind>) => string,
): { operation: string; response: DownloadResponse } => ({
  operation,
  response: download(
    [contentType],
    async ({ req, params, call }) => {
      const answer = await call(operation, params);
      const data = JSON.parse(answer) as DataOf<Kind>;
      return {
        name: fileName(data),
        contentType,
        etagSource: answer,
        content: (signal) => print({ kind, data } as PrintJob, { ...requestOwner(req), signal }),
      };
    },
    { isTagged: true },
  ),
});
