import { useState } from 'preact/hooks';
import { download } from '../data/api.ts';
import { attempt } from './dialogs.tsx';
import type { Query } from '../data/http.ts';
import { Button } from './button.tsx';

interface ExportButtonProps {
  path: string;
  query: Query;
  label: string;
  /** Shown when the file has been saved. */
  message: string;
}

/** Saves an export as a CSV file. */
export function ExportButton({ path, query, label, message }: ExportButtonProps) {
  const [isExporting, setExporting] = useState(false);
  const exportCsv = async () => {
    setExporting(true);
    await attempt(() => download(path, { ...query, format: 'csv' }), message);
    setExporting(false);
  };
  return (
    <Button
      icon="export"
      label={isExporting ? 'Exporting…' : label}
      isDisabled={isExporting}
      onClick={() => void exportCsv()}
    />
  );
}
