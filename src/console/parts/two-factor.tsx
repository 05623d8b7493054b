import { encode } from 'uqr';
import { CopyButton } from './components.tsx';
import { TextField } from './fields.tsx';
import type { TotpSetup } from '../types.ts';

/** The address that an authenticator app scans. Dark on white in both themes, because scanners expect it. */
function QrCode({ text }: { text: string }) {
  const { size, data } = encode(text, { border: 2 });
  const path = data.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : ''))).join('');
  return (
    <svg class="qr-code" role="img" aria-label="QR code" viewBox={`0 0 ${size} ${size}`} shape-rendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}

/** The input for the six digits of an app. */
export function CodeField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextField
      label="Code"
      name="code"
      isRequired
      hint="The six digits that your authenticator app shows."
      value={value}
      onChange={onChange}
      input={{ autocomplete: 'one-time-code', inputMode: 'numeric', spellcheck: false }}
    />
  );
}

/** What an operator adds to their authenticator app. */
export function AppSetup({ setup }: { setup: TotpSetup }) {
  return (
    <>
      <p>Scan this code with an authenticator app, then enter the six digits that the app shows.</p>
      <QrCode text={setup.otpauth_uri} />
      <p class="small">
        Without a camera, enter this key: <code class="secret">{setup.secret}</code>
      </p>
    </>
  );
}

/** New recovery codes, which are shown only once. */
export function RecoveryCodeList({ codes }: { codes: string[] }) {
  return (
    <>
      <p>
        Keep these recovery codes in a safe place. Each of them replaces a code of the app once. They are not shown
        again.
      </p>
      <ul class="recovery-codes">
        {codes.map((code) => (
          <li key={code}>
            <code>{code}</code>
          </li>
        ))}
      </ul>
      <CopyButton text={codes.join('\n')}>Copy</CopyButton>
    </>
  );
}
